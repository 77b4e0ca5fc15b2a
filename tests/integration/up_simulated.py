"""`duet up` with other programs in vLLM's place: `python -m tests.integration.up_simulated KIND [FLAGS OF duet up]`.

| KIND | every engine is |
| --- | --- |
| sim | a simulated engine |
| broken | `sim`, but decode says "no weights" and ends with 3 |
| fleeting | for prefill a program that ends as soon as it has answered; decode is `stuck` |
| stuck | a program that never answers, and does not end on SIGTERM |
"""

from __future__ import annotations

import sys
from functools import partial

from cli import up
from cli.local import model, plan, supervise
from cli.local.engines import LocalEngine, Stage
from cli.main import app
from common.engine import Role
from common.process import Child
from engines.thinker import EngineSpec

STUCK = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
FLEETING = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        os._exit(4)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
BROKEN = "print('no weights'); exit(3)"
GRACE = 2.0
"""Seconds: longer than two signals have to be apart, and no longer."""


def main(kind: str, *arguments: str) -> None:
    def thinker(name: str, spec: EngineSpec) -> LocalEngine:
        url = f"http://{spec.host}:{spec.port}"
        stage = Stage.PREFILL if spec.role is Role.PREFILL else Stage.DECODE
        return LocalEngine(name, stage, url, url, command(spec), {})

    def command(spec: EngineSpec) -> list[str]:
        if kind == "stuck" or (kind == "fleeting" and spec.role is Role.DECODE):
            return [sys.executable, "-c", STUCK]
        if kind == "broken" and spec.role is Role.DECODE:
            return [sys.executable, "-c", BROKEN]
        if kind == "fleeting":
            return [sys.executable, "-c", FLEETING, str(spec.port)]
        sim = [sys.executable, "-m", "engines.sim", "--host", spec.host, "--port", str(spec.port)]
        return [*sim, "--model", str(spec.served_name)]

    plan.thinker = thinker
    supervise.Child = partial(Child, grace=GRACE) if kind in ("stuck", "fleeting") else Child
    model.MAKERS = {"tiny": model.Maker(("tests.there_is_no_such_module",), "none")}
    up.require_vllm = lambda: None
    app(["up", "--device", "cpu", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
