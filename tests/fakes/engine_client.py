"""An `EngineClient` without a network: it answers by scripts and keeps what it was asked.

    client = FakeEngineClient()
    client.on("/v1/chat/completions", leg="prefill", reply=json_reply({...}))
    client.on("/v1/chat/completions", leg="decode", reply=sse_reply({...}, gate, {...}))

Deadlines are kept, cancellation and `close` are seen by the script's side (`Seen.left`). It passes the suite that the
real client passes, `tests/contract/transport/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from common.engine import Engine
from common.errors import EngineBroken, EngineError, EngineTimeout, EngineUnreachable
from gateway.transport.awake import within
from gateway.transport.patience import Patience
from gateway.transport.port import Deadlines, Reply, Sent
from tests.fakes.script import CUT, Script, Seen

IDENTITY = "/duet/identity"

Answer = Script | EngineError | Callable[[Seen], Script | EngineError]
"""A script, an error that is raised instead of a reply, or a function that looks at the call first."""


@dataclass
class Rule:
    """What is answered to whom; None stands for any. `times` counts down, None for ever."""

    path: str | None
    leg: str | None
    engine: str | None
    reply: Answer
    times: int | None

    def fits(self, engine: Engine, seen: Seen) -> bool:
        return (
            self.times != 0
            and self.path in (None, seen.path)
            and self.leg in (None, seen.leg)
            and self.engine in (None, engine.id)
        )


@dataclass
class FakeEngineClient:
    """`calls` has every call, `posts` those that carry work. A call that no rule fits is an AssertionError, save for
    the identity: an engine is a stock one until a rule says who it is."""

    rules: list[Rule] = field(default_factory=list)
    calls: list[tuple[Engine, Seen]] = field(default_factory=list)
    closed: bool = False
    connecting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each POST."""
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    """POSTs wait for it before anything of them leaves. It is set until a test clears it."""

    def __post_init__(self) -> None:
        self.connected.set()

    def on(
        self,
        path: str | None = None,
        *,
        reply: Answer,
        leg: str | None = None,
        engine: str | None = None,
        times: int | None = None,
    ) -> None:
        """Of the rules that fit a call, the first one made counts."""
        self.rules.append(Rule(path, leg, engine, reply, times))

    @property
    def posts(self) -> list[Seen]:
        return [seen for _, seen in self.calls if seen.method == "POST"]

    def posts_of(self, leg: str) -> list[Seen]:
        return [seen for seen in self.posts if seen.leg == leg]

    async def get(self, engine: Engine, path: str, *, timeout: float) -> Reply:
        try:
            async with within(timeout):
                stream = await self._call(engine, Seen("GET", path, {}, b""), Deadlines(inf, inf, inf))
                return Reply(stream.status, stream.headers, await stream.read())
        except TimeoutError:
            raise EngineTimeout(f"engine {engine.id} did not answer {path}", engine=engine.id) from None
        except EngineBroken as e:
            raise EngineUnreachable(e.message, engine=engine.id) from None

    async def post(
        self,
        engine: Engine,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        deadlines: Deadlines,
        sent: Sent | None = None,
    ) -> FakeReplyStream:
        seen = Seen("POST", path, {"content-type": "application/json", **headers}, body)
        self.connecting.set()
        await self.connected.wait()
        if sent is not None:
            sent.maybe = True
        return await self._call(engine, seen, deadlines)

    async def aclose(self) -> None:
        self.closed = True

    async def _call(self, engine: Engine, seen: Seen, deadlines: Deadlines) -> FakeReplyStream:
        self.calls.append((engine, seen))
        script = self._script(engine, seen)
        since = _now()
        try:
            async with asyncio.timeout(deadlines.headers):
                for part in script.before:
                    if isinstance(part, asyncio.Event):
                        await part.wait()
                    else:
                        raise EngineUnreachable(
                            f"engine {engine.id} cannot be reached: cut", engine=engine.id, worked=True
                        )
        except TimeoutError:
            seen.left.set()
            raise EngineTimeout(f"engine {engine.id} did not answer {seen.path}", engine=engine.id) from None
        except asyncio.CancelledError:
            seen.left.set()
            raise
        return FakeReplyStream(engine, script, seen, Patience(deadlines, since, _now()))

    def _script(self, engine: Engine, seen: Seen) -> Script:
        rule = next((rule for rule in self.rules if rule.fits(engine, seen)), None)
        if rule is None and seen.path == IDENTITY:
            return Script(status=404)
        assert rule is not None, f"no rule for {seen.method} {seen.path} of {engine.id}, leg {seen.leg}"
        if rule.times is not None:
            rule.times -= 1
        reply = rule.reply(seen) if callable(rule.reply) else rule.reply
        if isinstance(reply, EngineError):
            raise reply
        return reply


def _now() -> float:
    return asyncio.get_running_loop().time()


class FakeReplyStream:
    def __init__(self, engine: Engine, script: Script, seen: Seen, patience: Patience) -> None:
        self._engine = engine
        self._parts = list(script.parts)
        self._seen = seen
        self._patience = patience
        self.status = script.status
        self.headers: Mapping[str, str] = dict(script.headers)

    async def chunks(self, *, every: bool = True) -> AsyncIterator[bytes]:
        while self._parts:
            part = self._parts[0]
            if isinstance(part, asyncio.Event):
                since = _now()
                await self._wait(part, self._patience.left(since))
                self._patience.waited(_now() - since)
            if part is CUT or self._seen.left.is_set():
                why = "cut" if part is CUT else "closed"
                raise EngineBroken(f"engine {self._engine.id} broke off its reply: {why}", engine=self._engine.id)
            self._parts.pop(0)
            if isinstance(part, bytes):
                if every:
                    self.said()
                yield part
        self._seen.answered.set()

    def said(self) -> None:
        self._patience.renew()

    async def _wait(self, gate: asyncio.Event, bound: float) -> None:
        """For the gate, or for a `close`, as long as the deadline allows."""
        waits = [asyncio.ensure_future(event.wait()) for event in (gate, self._seen.left)]
        try:
            done, _ = await asyncio.wait(waits, timeout=max(0.0, bound), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not done:
            raise EngineTimeout(f"engine {self._engine.id} {self._patience.why(_now())}", engine=self._engine.id)

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    def close(self) -> None:
        if not self._seen.answered.is_set():
            self._seen.left.set()
