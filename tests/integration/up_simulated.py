"""`duet up` with other programs in vLLM's place: `python -m tests.integration.up_simulated KIND [FLAGS OF duet up]`.

| KIND | every engine is |
| --- | --- |
| sim | a simulated engine |
| broken | `sim`, but decode says "no weights" and ends with 3 |
| fleeting | for prefill a program that ends as soon as it has answered; decode is `stuck` |
| stuck | a program that never answers, and does not end on SIGTERM |

A Talker and a Code2Wav are `sim` in each of them: they answer, and say nothing. There are GPUs, as many as are named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

from cli import up
from cli.local import from_file, model, plan, supervise
from cli.local.engines import LocalEngine, Stage
from cli.main import app
from common.engine import Role
from common.process import Child
from engines.code2wav.launch import Code2WavSpec
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
GRACE = float(os.environ.get("UP_SIMULATED_GRACE", "2"))
"""Seconds that engines which do not end are given: no longer than need be, unless a second signal is to come before."""


def main(kind: str, *arguments: str) -> None:
    def thinker(name: str, spec: EngineSpec) -> LocalEngine:
        url = f"http://{spec.host}:{spec.port}"
        stage = Stage.PREFILL if spec.role is Role.PREFILL else Stage.DECODE
        return LocalEngine(name, stage, url, url, command(spec), {})

    def other(name: str, spec: EngineSpec | Code2WavSpec, flags: Sequence[str] = ()) -> LocalEngine:
        url = f"http://{spec.host}:{spec.port}"
        return LocalEngine(name, Stage(f"{name}s"), url, url, simulated(spec), {})

    def simulated(spec: EngineSpec | Code2WavSpec) -> list[str]:
        sim = [sys.executable, "-m", "engines.sim", "--host", spec.host, "--port", str(spec.port)]
        return [*sim, "--model", str(spec.served_name)]

    def command(spec: EngineSpec) -> list[str]:
        if kind == "stuck" or (kind == "fleeting" and spec.role is Role.DECODE):
            return [sys.executable, "-c", STUCK]
        if kind == "broken" and spec.role is Role.DECODE:
            return [sys.executable, "-c", BROKEN]
        if kind == "fleeting":
            return [sys.executable, "-c", FLEETING, str(spec.port)]
        return simulated(spec)

    plan.thinker, plan.talker, plan.code2wav = thinker, other, other
    from_file.device_of = lambda spec: "cuda"
    supervise.Child = partial(Child, grace=GRACE) if kind in ("stuck", "fleeting") else Child
    model.MAKERS = {"tiny": model.Maker(("tests.there_is_no_such_module",), "none")}
    up.require_vllm = lambda: None
    app(["up", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
