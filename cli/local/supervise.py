"""Starts everything, watches it, and ends it: the gateway first, so that it can still use what is behind it."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType

import typer

from cli.local.checklist import Checklist
from cli.local.hello import hello
from cli.local.plan import Plan, log_dir
from common.errors import ConfigurationError, DuetError
from common.ports import require_free
from common.process import Child
from common.valkey import EmbeddedValkey
from engines.thinker import EngineSpec, command, environment
from engines.thinker.launch import device_of
from engines.thinker.ready import Readiness, phase_of

LOOK_EVERY = 0.25
GATEWAY_WITHIN = 30.0


def run(plan: Plan) -> int:
    """Until Ctrl-C or SIGTERM (0), or until one part ends (1). Raises DuetError for what never came up."""
    require_free(plan.host, plan.port)
    local = Local(plan)
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, local.asked_to_stop)
    try:
        local.start()
        if not local.stopping:
            typer.echo(hello(plan.url, plan.served_name, local.logs))
        return local.watch()
    finally:
        local.stop()


class Local:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.logs = log_dir()
        self.stopping = False
        self._valkey = EmbeddedValkey()
        self._engines: list[tuple[EngineSpec, Child]] = []
        self._gateway: Child | None = None

    def asked_to_stop(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends everything in order. A second one ends this process: its children end with it."""
        if self.stopping:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.stopping = True

    def start(self) -> None:
        """Raises DuetError naming the part that did not come up, with the end of its log."""
        names = ["model", "valkey", *self._engine_names(), "gateway"]
        with Checklist(names) as checklist:
            self._model(checklist)
            if self.stopping:
                return
            checklist.start("valkey")
            self._valkey.start()
            checklist.done("valkey")
            self._start_engines(checklist, names[2:-1])
            if self.stopping:
                return
            self._start_gateway(checklist)

    def watch(self) -> int:
        """Waits for a signal (0) or for a part that ends by itself (1)."""
        while not self.stopping:
            for child in self._children():
                if not child.running:
                    typer.echo(
                        f"duet: {child.name} ended with status {child.poll()}; the end of {child.log}:", err=True
                    )
                    typer.echo(child.tail(30), err=True)
                    return 1
            if not self._valkey.running:
                typer.echo("duet: valkey ended", err=True)
                return 1
            time.sleep(LOOK_EVERY)
        return 0

    def stop(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()
        for _, child in self._engines:
            child.ask_to_stop()
        for _, child in self._engines:
            child.stop()
        self._valkey.stop()

    def _engine_names(self) -> list[str]:
        counts = {"prefill": self.plan.prefill, "decode": self.plan.decode}
        return [f"{role} engine {n + 1}" for role, count in counts.items() for n in range(count)]

    def _children(self) -> Sequence[Child]:
        children = [child for _, child in self._engines]
        return children if self._gateway is None else [*children, self._gateway]

    def _model(self, checklist: Checklist) -> None:
        checklist.start("model", self.plan.served_name)
        make = self.plan.make_model()
        if make is None:
            checklist.done("model", f"{self.plan.served_name}, from {self.plan.model_dir}")
            return
        log = self.logs / "model.log"
        child = Child("model", make, log=log).start()
        try:
            while child.running and not self.stopping:
                checklist.progress("model", _last_line(child) or self.plan.served_name)
                time.sleep(LOOK_EVERY)
        finally:
            code = child.stop()
        if code and not self.stopping:
            checklist.failed("model")
            raise ConfigurationError(
                f"the model {self.plan.model!r} could not be made; the end of {log}:\n{child.tail(20)}"
            )
        checklist.done("model", f"{self.plan.served_name}, made in {self.plan.model_dir}")

    def _start_engines(self, checklist: Checklist, names: Sequence[str]) -> None:
        waiting = []
        for name, spec in zip(names, self.plan.engines(), strict=True):
            device = device_of(spec)
            log = self.logs / f"{name.replace(' ', '-')}.log"
            child = Child(name, command(spec, device=device), log=log, env=environment(spec, device=device)).start()
            self._engines.append((spec, child))
            waiting.append(Readiness(child, f"http://{spec.host}:{spec.port}"))
            checklist.start(name, "starting")
        while waiting and not self.stopping:
            for one in list(waiting):
                if self._look(checklist, one):
                    checklist.done(one.child.name)
                    waiting.remove(one)
                elif phase := _phase(one.child):
                    checklist.progress(one.child.name, phase)
            time.sleep(LOOK_EVERY)

    def _start_gateway(self, checklist: Checklist) -> None:
        checklist.start("gateway")
        argv = self.plan.gateway([spec for spec, _ in self._engines], self._valkey.url)
        self._gateway = Child("gateway", argv, log=self.logs / "gateway.log").start()
        ready = Readiness(self._gateway, self.plan.url, within=GATEWAY_WITHIN)
        while not self.stopping and not self._look(checklist, ready):
            time.sleep(LOOK_EVERY)
        checklist.done("gateway", self.plan.url)

    def _look(self, checklist: Checklist, ready: Readiness) -> bool:
        try:
            return ready.look()
        except DuetError:
            checklist.failed(ready.child.name)
            raise


def _phase(child: Child) -> str | None:
    """How far a start has come, by the newest line of its log that says so."""
    return next((phase for line in reversed(child.tail(40).splitlines()) if (phase := phase_of(line))), None)


def _last_line(child: Child) -> str | None:
    lines = child.tail(1).splitlines()
    return lines[-1][:80] if lines else None
