"""Starts everything, watches it, and ends it: the gateway first, so that it can still use what is behind it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import typer

from cli.errors import complain
from cli.local.checklist import Checklist
from cli.local.engines import LocalEngine
from cli.local.hello import hello
from cli.local.plan import Plan
from cli.local.signals import StopSignal
from common import scratch
from common.cache import cache_dir
from common.errors import DuetError
from common.ports import require_free
from common.process import Child
from common.valkey import EmbeddedValkey
from engines.thinker.ready import Readiness, phase_of

LOOK_EVERY = 0.25
"""Seconds between two looks at what is started and what runs."""
GATEWAY_WITHIN = 60.0
"""Seconds from the gateway's start to its first answer: long, for a machine that is busy."""
LAST_WORDS = 30
"""Lines of a log that are shown when its process ends by itself."""
STREAMS_MAY_END = "5"
"""Seconds that running answers have after Ctrl-C."""


class ModelNotMade(DuetError):
    """The message has the last lines of what its maker said."""

    code = "model_not_made"


def run(plan: Plan) -> int:
    """Until Ctrl-C or SIGTERM (0), or until one part ends by itself (1).

    Raises ConfigurationError for a port that is taken, and ModelNotMade or EngineStartFailed for what did not come
    up, with the end of its log.
    """
    require_free(plan.settings.host, plan.port)
    for note in plan.notes:
        complain(note)
    stop = StopSignal()
    stop.listen()
    local = Local(plan, stop)
    try:
        local.start()
        if not stop.asked:
            typer.echo(hello(plan.url, plan.model, local.logs, keyed=plan.keyed))
        return local.watch()
    finally:
        local.stop()


class Local:
    def __init__(self, plan: Plan, stop: StopSignal) -> None:
        self.plan = plan
        self.logs = cache_dir() / "logs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
        self._stop = stop
        self._valkey = EmbeddedValkey(log=self.logs / "valkey.log")
        self._folder = scratch.make("duet-up-")
        self._engines: list[Child] = []
        self._gateway: Child | None = None

    def start(self) -> None:
        """Returns when everything answers, or early when it is asked to stop. Raises as `run` says."""
        names = self.plan.engine_names
        with Checklist(["model", "valkey", *names, "gateway"]) as checklist:
            self._make_models(checklist)
            if self._stop.asked:
                return
            engines = self.plan.engines(self._folder)
            looks = [self._start_engine(checklist, engine) for engine in engines if not engine.after]
            checklist.start("valkey")
            self._valkey.start()
            checklist.done("valkey")
            self._wait(checklist, looks, [engine for engine in engines if engine.after])
            if self._stop.asked:
                return
            self._start_gateway(checklist, engines)

    def watch(self) -> int:
        """Waits for a signal (0), or for a part that ends by itself (1): then it says which, and its last words."""
        while not self._stop.asked:
            for part in (*self._engines, self._gateway, self._valkey.child):
                if part is not None and not part.running:
                    complain(f"{part.name} ended with status {part.poll()}; the end of {part.log}:")
                    typer.echo(part.tail(LAST_WORDS), err=True)
                    return 1
            time.sleep(LOOK_EVERY)
        return 0

    def stop(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            typer.echo("\nStopping.", err=True)
        if self._gateway is not None:
            self._gateway.stop()
        for engine in self._engines:
            engine.ask_to_stop()
        for engine in self._engines:
            engine.stop()
        self._valkey.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_models(self, checklist: Checklist) -> None:
        checklist.start("model", self.plan.model.name)
        notes = []
        for model in self.plan.models:
            made = self._make(checklist, model.name, model.make())
            if model.speaks and not self._stop.asked:
                made = self._make(checklist, model.name, model.make_talker()) or made
            if self._stop.asked:
                return
            notes.append(f"{model.name}, {'made in' if made else 'from'} {model.directory}")
        checklist.done("model", "; ".join(notes))

    def _make(self, checklist: Checklist, name: str, command: list[str] | None) -> bool:
        """Whether there was something to make. Raises ModelNotMade."""
        if command is None:
            return False
        with Child("model", command, log=self.logs / "model.log") as child:
            while child.running and not self._stop.asked:
                checklist.progress("model", child.tail(1)[:80] or name)
                time.sleep(LOOK_EVERY)
        if not self._stop.asked and child.poll() != 0:
            checklist.failed("model")
            raise ModelNotMade(
                f"the model {name!r} could not be made; the end of {child.log}:\n{child.tail(LAST_WORDS)}"
            )
        return True

    def _start_engine(self, checklist: Checklist, engine: LocalEngine) -> Readiness:
        child = Child(engine.name, engine.command, log=self.logs / f"{engine.name}.log", env=engine.env).start()
        self._engines.append(child)
        checklist.start(engine.name, "starting")
        return Readiness(child, engine.url)

    def _start_gateway(self, checklist: Checklist, engines: list[LocalEngine]) -> None:
        argv = self.plan.gateway(engines, self._valkey.url)
        env = {"DUET_SHUTDOWN_GRACE": STREAMS_MAY_END}
        self._gateway = Child("gateway", argv, log=self.logs / "gateway.log", env=env).start()
        checklist.start("gateway")
        self._wait(checklist, [Readiness(self._gateway, self.plan.url, within=GATEWAY_WITHIN)])

    def _wait(self, checklist: Checklist, looks: list[Readiness], later: Sequence[LocalEngine] = ()) -> None:
        """Until all of them answer, or it is asked to stop. `later` are started when those that they are after do."""
        answered: list[Readiness] = []
        waiting = list(later)
        while (len(answered) < len(looks) or waiting) and not self._stop.asked:
            for one in looks:
                if one in answered and one.child.running:
                    continue
                if self._answers(checklist, one):
                    checklist.done(one.child.name, one.url)
                    answered.append(one)
                elif phase := _phase(one.child):
                    checklist.progress(one.child.name, phase)
            names = {one.child.name for one in answered}
            for engine in [engine for engine in waiting if names.issuperset(engine.after)]:
                waiting.remove(engine)
                looks.append(self._start_engine(checklist, engine))
            time.sleep(LOOK_EVERY)

    def _answers(self, checklist: Checklist, one: Readiness) -> bool:
        try:
            return one.look()
        except DuetError:
            checklist.failed(one.child.name)
            raise


def _phase(child: Child) -> str | None:
    """How far a start has come, by the newest line of its log that says so."""
    return next((phase for line in reversed(child.tail(40).splitlines()) if (phase := phase_of(line))), None)
