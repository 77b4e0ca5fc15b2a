"""A coordinator over fakes: engines that answer by script, a store in memory, time that a test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.connectors import Connector, connector
from common.connectors.base import CancelPolicy, Handoff, HandoffContext, Order, Params, PrefillReply
from common.engine import Engine, Role
from common.ids import RandomIds
from gateway.dispatch import Coordinator
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.policy import Policies
from gateway.dispatch.pulse import Pulse
from gateway.fleet import Fleet
from gateway.routing import Picker
from gateway.store.memory import MemoryStore
from gateway.telemetry import Metrics
from gateway.wire import parse
from tests.contract.connectors.samples import SAMPLES
from tests.fakes.clock import FakeClock
from tests.fakes.engine_client import FakeEngineClient
from tests.fakes.script import Script, Seen, json_reply, sse_reply

PATH = "/v1/completions"
PREFILL = Engine.at("http://127.0.0.1:8100", Role.PREFILL)
DECODE = Engine.at("http://127.0.0.1:8200", Role.DECODE)
LEASE = 30.0


class Together(Connector):
    """A connector whose legs run at once and whose prefill returns nothing: what Mooncake is like."""

    name = "Together"
    order = Order.CONCURRENT
    cancel = CancelPolicy.LEASE

    @property
    def default_lease(self) -> float:
        return LEASE

    def prefill_params(self, ctx: HandoffContext) -> Params:
        return {"transfer_id": ctx.transfer_id, "do_remote_decode": True}

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        return Handoff(self.name, {"transfer_id": ctx.transfer_id}, None, ctx.now + self.lease)

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params:
        return handoff.params

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        return {"kv_connector": self.name}


@dataclass
class KeptSink:
    """A sink that keeps what it was given."""

    started: bool = False
    status: int | None = None
    body: bytes = b""
    ended: bool = False

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        assert not self.started, "a status line leaves once"
        self.started, self.status = True, status

    async def write(self, body: bytes) -> None:
        assert self.started
        assert not self.ended
        self.body += body

    async def end(self, body: bytes = b"") -> None:
        assert self.started
        assert not self.ended
        self.body += body
        self.ended = True


@dataclass
class Rig:
    """Everything that one coordinator stands on. `ask` runs one request into a new sink."""

    kv: Connector = field(default_factory=lambda: connector("nixl", lease=LEASE))
    refuse_unsplit: bool = False
    policies: Policies = field(default_factory=Policies)
    share: float = 0.2
    floor: int = 20
    idle: float = 60.0
    first_token: float = 60.0
    admission: float = 60.0
    engines: Sequence[Engine] = (PREFILL, DECODE)
    clock: FakeClock = field(default_factory=FakeClock)
    client: FakeEngineClient = field(default_factory=FakeEngineClient)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.fleet = Fleet(
            self.engines,
            client=self.client,
            store=self.store,
            clock=self.clock,
            connector=self.kv,
            metrics=self.metrics,
            interval=1,
            timeout=1,
            failures=3,
            load_interval=1,
            breaker_failures=3,
            breaker_pause=2.0,
        )
        for member in self.fleet.members.values():
            member.up, member.models, member.fault = True, {"m": 2048}, None
        self.pulse = Pulse(self.clock)
        self.coordinator = Coordinator(
            fleet=self.fleet,
            picker=Picker(),
            store=self.store,
            client=self.client,
            connector=self.kv,
            clock=self.clock,
            ids=RandomIds(),
            metrics=self.metrics,
            deadlines=LegDeadlines.of(
                connect=60, headers=60, prefill=60, first_token=self.first_token, idle=self.idle, unary=60
            ),
            policies=self.policies,
            pulse=self.pulse,
            budget=RetryBudget(share=self.share, floor=self.floor),
            replica="replica-1",
            load_ttl=600,
            refuse_unsplit=self.refuse_unsplit,
            admission=self.admission,
        )

    async def ask(self, request_id: str = "r1", sink: KeptSink | None = None, **fields: Any) -> KeptSink:
        sink = sink if sink is not None else KeptSink()
        body = json.dumps({"model": "m", "prompt": "hello", **fields}).encode()
        await self.coordinator.run(request_id, parse(PATH, body), sink)
        return sink

    def loads(self) -> list[int]:
        return [member.local for member in self.fleet.members.values()]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], Any]) -> None:
    """Lets everything else go on until the condition holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


def prefilled(params: Any = ..., **changes: Any) -> Callable[[Seen], Script]:
    """A prefill engine's replies, with the default connector's handoff unless told otherwise. Each names its request,
    as a real engine's does."""
    return lambda seen: prefill_reply(params, remote_request_id=f"cmpl-{seen.headers['x-request-id']}-0", **changes)


def prefill_reply(params: Any = ..., **changes: Any) -> Script:
    """One of them."""
    sample = next(iter(SAMPLES.values()))
    kv = {**(sample.reply or {}), **changes} if params is ... else params
    usage = {"prompt_tokens": sample.prompt_tokens, "completion_tokens": 1, "total_tokens": sample.prompt_tokens + 1}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "prompt_token_ids": [5, 6]}
    return json_reply({"id": "p", "choices": [choice], "usage": usage, "kv_transfer_params": kv})


def answered(text: str = "hi") -> Script:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 110, "completion_tokens": 1, "total_tokens": 111}
    return json_reply({"id": "d", "choices": [choice], "usage": usage, "kv_transfer_params": None})


def streamed(*texts: Any) -> Script:
    """A stream of these texts; what is not a text stays a part of the script."""
    return sse_reply(*(t if not isinstance(t, str) else event(t) for t in texts))


def event(text: str) -> dict[str, Any]:
    return {"id": "d", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
