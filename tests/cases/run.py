#!/usr/bin/env python3
"""Run behaviour cases against a prefill/decode gateway. See README.md.

run.py --command "GATEWAY --port {port} --prefill {prefill1} --prefill {prefill2} --decode {decode1} --decode {decode2}"
       [--cases cases.py] [--only ID,ID] [--kind K,K] [--fresh | --keep] [--json results.json] ...
"""

import argparse
import importlib.util
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import contextlib

from harness import CASES, Engine, Fail, G, Late, Skip

LATE = "late: "
"""Begins the reason of a failure that was one of time."""


def free_ports(n):
    ss = [socket.socket() for _ in range(n)]
    for s in ss:
        s.bind(("127.0.0.1", 0))
    ps = [s.getsockname()[1] for s in ss]
    for s in ss:
        s.close()
    return ps


class Proc:
    """A child in its own session; stop() ends only that session."""

    def __init__(self, argv, log, env=None):
        self.log = log
        self.p = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=env
        )

    def alive(self):
        return self.p.poll() is None

    def _group(self, sig):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.p.pid, sig)

    def stop(self, grace=1.5):
        if self.alive():
            self._group(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.p.wait(grace)
        self._group(signal.SIGKILL)
        self.p.wait()


class Bench:
    """Four fake engines and one gateway of a flavour ('' or 'mooncake')."""

    def __init__(self, args, flavour, log):
        self.args, self.flavour, self.log = args, flavour, log
        self.template = args.command if not flavour else getattr(args, "command_" + flavour)
        self.kv = flavour or "nixl"
        self.engines = []
        self.procs = []
        self.gw = None
        self.gw2 = None
        self.starts = 0
        ports = free_ports(14)
        self.names = {}
        for i, (role, no) in enumerate((("prefill", 1), ("prefill", 2), ("decode", 1), ("decode", 2))):
            port, ctl, boot = ports[3 * i : 3 * i + 3]
            self.names.update(
                {
                    f"{role}{no}": f"http://127.0.0.1:{port}",
                    f"{role}{no}_port": port,
                    **({f"bootstrap{no}": boot} if role == "prefill" else {}),
                }
            )
            self.procs.append(
                Proc(
                    [
                        sys.executable,
                        os.path.join(HERE, "fake_engine.py"),
                        "--role",
                        role,
                        "--port",
                        str(port),
                        "--control",
                        str(ctl),
                        "--kv",
                        self.kv,
                        "--model",
                        args.model,
                        *(["--bootstrap", str(boot)] if role == "prefill" else []),
                    ],
                    log,
                )
            )
            self.engines.append(Engine(f"{role[0]}{no}", role, port, ctl))
        for e in self.engines:
            self.wait_engine(e)
        self.opts = dict(o.split("=", 1) for o in args.opt)
        self.opts["model"] = args.model

    def wait_engine(self, e):
        end = time.time() + 60
        while True:
            try:
                e.stats()
                return
            except OSError:
                if time.time() > end:
                    raise SystemExit("a fake engine did not come up")
                time.sleep(0.05)

    def launch(self):
        port, mport = free_ports(2)
        sub = {"port": port, "mport": mport, "model": self.args.model, **self.names}
        argv = [a.format(**sub) for a in shlex.split(self.template)]
        env = dict(os.environ)
        while argv and "=" in argv[0] and not argv[0].startswith("-"):
            k, v = argv.pop(0).split("=", 1)
            env[k] = v
        self.log.write(f"\n==== start {argv}\n".encode())
        self.log.flush()
        p = Proc(argv, self.log, env)
        base = f"http://127.0.0.1:{port}"
        self.opts["metrics_url"] = self.args.metrics_url.format(**sub) if self.args.metrics_url else ""
        g = G(base, self.engines, self.opts)
        end = time.time() + self.args.start_timeout
        good = 0
        why = ""
        while good < 2:
            if not p.alive():
                raise SystemExit(f"the gateway exited with {p.p.returncode} while starting; see {self.args.log}")
            if time.time() > end:
                p.stop()
                raise SystemExit(f"the gateway did not become healthy: {why}; see {self.args.log}")
            try:
                h = g.get(self.args.health_path, timeout=2)
                r = g.ask(timeout=5, stream=False) if h.status == 200 else h
                why = r.brief()
                if h.status == 200 and r.status == 200:
                    good += 1
                    continue
            except Exception as x:
                why = repr(x)
            time.sleep(0.15)
        self.starts += 1
        return p, g

    def fresh(self):
        if self.gw:
            self.gw[0].stop()
        for e in self.engines:
            e.reset()
        self.gw = self.launch()

    def replica(self):
        if self.gw2:
            self.gw2[0].stop()
        self.gw2 = self.launch()
        return self.gw2[1].base

    def close(self):
        for x in (self.gw, self.gw2):
            if x:
                x[0].stop()
        for p in self.procs:
            p.stop()


def run_case(c, g):
    box = {}

    def body():
        try:
            c["fn"](g)
            box["v"] = ("PASS", "")
        except Skip as x:
            box["v"] = ("SKIP", str(x))
        except Late as x:
            box["v"] = ("FAIL", f"{LATE}{x}")
        except Fail as x:
            box["v"] = ("FAIL", str(x))
        except Exception as x:
            box["v"] = (
                "FAIL",
                f"{type(x).__name__}: {x} [{traceback.extract_tb(x.__traceback__)[-1].name}:{traceback.extract_tb(x.__traceback__)[-1].lineno}]",
            )

    t = threading.Thread(target=body, daemon=True)
    t0 = time.time()
    t.start()
    t.join(c["timeout"] * g.slack)
    return (*box.get("v", ("FAIL", f"{LATE}no verdict after {c['timeout']} s: something hangs")), time.time() - t0)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument(
        "--command",
        help="how to start the gateway; placeholders {port} {mport} {model} {prefill1} {prefill2} {decode1} {decode2} (URLs), {prefill1_port}.., {bootstrap1} {bootstrap2}; leading NAME=VALUE words set the environment",
    )
    ap.add_argument(
        "--command-mooncake", help="the same for the mooncake connector; cases that need it are skipped without"
    )
    ap.add_argument(
        "--replica",
        action="store_true",
        help="the command may be started twice and both share state: run the replica cases",
    )
    ap.add_argument("--cases", nargs="+", default=sorted(f for f in os.listdir(HERE) if f.startswith("cases_")))
    ap.add_argument("--only")
    ap.add_argument("--kind")
    ap.add_argument("--skip")
    ap.add_argument(
        "--fresh",
        action="store_true",
        help="restart the gateway before every case (default: after dirty or failed ones)",
    )
    ap.add_argument("--keep", action="store_true", help="never restart it")
    ap.add_argument("--json", default="results.json")
    ap.add_argument("--log", default=os.path.join(tempfile.gettempdir(), f"cases-gateway-{os.getpid()}.log"))
    ap.add_argument("--model", default="fake-model")
    ap.add_argument("--health-path", default="/health")
    ap.add_argument("--start-timeout", type=float, default=60)
    ap.add_argument(
        "--metrics-url", default="", help="e.g. http://127.0.0.1:{mport}/metrics; default: /metrics of the gateway"
    )
    ap.add_argument(
        "--opt",
        action="append",
        default=[],
        help="facts about the gateway, name=value: body_limit=BYTES, engine_key=KEY, slack=FACTOR (time limits), contract=none (no vLLM hand-off: dual dispatch), register='METHOD PATH BODY'",
    )
    ap.add_argument(
        "--trace",
        help="folder; after a FAIL the engines' logs (bodies, headers, times) are saved there as CASE.json",
    )
    ap.add_argument("--list", action="store_true")
    args = ap.parse_args()
    for f in args.cases:
        path = f if os.path.exists(f) else os.path.join(HERE, f)
        spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    ids = [
        i
        for i, c in CASES.items()
        if (not args.only or i in args.only.split(","))
        and (not args.kind or c["kind"] in args.kind.split(","))
        and i not in (args.skip or "").split(",")
    ]
    if args.list:
        for i in ids:
            c = CASES[i]
            print(f"{i:34} {c['kind']:9} {','.join(map(str, c['reports'])):14} {c['title']}")
        print(len(ids), "cases")
        return 0
    if not args.command:
        ap.error("--command is needed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children are stopped below
    log = open(args.log, "ab")
    results = []
    bench = None
    ids.sort(key=lambda i: CASES[i]["needs"] == "mooncake")  # stable: flavours together
    try:
        for i in ids:
            c = CASES[i]
            flavour = "mooncake" if c["needs"] == "mooncake" else ""
            skip = ""
            if flavour and not args.command_mooncake:
                skip = "no --command-mooncake"
            elif c["needs"] == "replica" and not args.replica:
                skip = "no --replica"
            elif (
                c["needs"]
                and c["needs"] not in ("mooncake", "replica")
                and not any(o.startswith(c["needs"] + "=") for o in args.opt)
            ):
                skip = f"no --opt {c['needs']}=..."
            elif c["split"] and "contract=none" in args.opt:
                skip = "assumes vLLM's two-leg contract"
            if skip:
                v, why, dt = "SKIP", skip, 0.0
            else:
                if bench and bench.flavour != flavour:
                    bench.close()
                    bench = None
                if not bench:
                    bench = Bench(args, flavour, log)
                    bench.fresh()
                elif not bench.gw[0].alive() or (not args.keep and (args.fresh or results and results[-1]["restart"])):
                    bench.fresh()
                for e in bench.engines:
                    e.reset()
                g = bench.gw[1]
                if c["needs"] == "replica":
                    g.base2 = bench.replica()
                log.write(f"\n---- case {i}\n".encode())
                log.flush()
                v, why, dt = run_case(c, g)
                if v == "FAIL" and args.trace:
                    os.makedirs(args.trace, exist_ok=True)
                    with open(os.path.join(args.trace, i + ".json"), "w") as f:
                        json.dump(
                            sorted((x for e in bench.engines for x in e.log()), key=lambda x: x["t"]),
                            f,
                            indent=1,
                            ensure_ascii=False,
                        )
                if not bench.gw[0].alive():
                    v, why = "FAIL", f"the gateway died (exit {bench.gw[0].p.returncode}); {why}"
            print(f"{v:4} {i:34} {dt:5.1f}s  {c['title']}" + (f"\n       -> {why}" if why else ""), flush=True)
            results.append(
                {
                    "id": i,
                    "verdict": v,
                    "reason": why,
                    "seconds": round(dt, 2),
                    "title": c["title"],
                    "kind": c["kind"],
                    "reports": c["reports"],
                    "restart": c["dirty"] or v == "FAIL",
                }
            )
    finally:
        if bench:
            bench.close()
    n = {k: sum(r["verdict"] == k for r in results) for k in ("PASS", "FAIL", "SKIP")}
    for r in results:
        r.pop("restart")
    with open(args.json, "w") as f:
        json.dump(
            {
                "command": args.command,
                "passed": n["PASS"],
                "failed": n["FAIL"],
                "skipped": n["SKIP"],
                "cases": results,
            },
            f,
            indent=1,
        )
    if n["SKIP"]:
        print(f"{n['SKIP']} skipped")
    print(f"{n['PASS']} passed, {n['FAIL']} failed")
    return 1 if n["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
