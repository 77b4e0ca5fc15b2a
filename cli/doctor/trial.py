"""One request of one token through a prefill and a decode engine: the connector's own parameters, the gateway's own
bodies, and vLLM's own counter as the proof that KV came from the other side.

It does what the first client's request would do, no more and no less. The prompt is the probe text's tokens in an order
that nobody has seen, so no prefix cache has it, and both legs get the same ids, so neither tokenizer is asked.

| what stands in the way | what is done with the KV that prefill holds |
| --- | --- |
| nothing | decode fetches it |
| no decode engine fits, and a refusal frees (`CancelPolicy.REFUSED_DECODE`) | a decode body with `n: 0` |
| no decode engine fits, else | it lives until the end of the lease, and the finding says so |
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cli.doctor.ask import PROBE_TEXT, Asker, EngineLook, words
from cli.doctor.finding import Check, Finding, fault, ok
from cli.doctor.pair import Pair
from common.clock import Clock
from common.connectors import Connector
from common.connectors.base import CancelPolicy, Handoff, HandoffContext, Order, PrefillReply
from common.engine import Role
from common.errors import EngineBroken, EngineError
from common.ids import IdSource, leg_id
from gateway.wire import ClientRequest, Prefilled, decode_body, parse, parse_prefill_reply, prefill_body

PATH = "/v1/completions"
COUNTED_WITHIN = 2.0
"""Seconds: an engine may count a request's tokens a moment after it has answered."""
LOOK_EVERY = 0.05
_LOADED = re.compile(
    r'^vllm:prompt_tokens_by_source_total\{[^}]*source="external_kv_transfer"[^}]*\}\s+(\S+)', re.MULTILINE
)
_COUNTS = "vllm:prompt_tokens_by_source_total"


@dataclass(frozen=True, slots=True)
class Plan:
    """`pairs` to send a request through; `alone` are prefill engines without a partner that fits, each with an engine
    whose refusal may give its KV back. Engines that generate nothing are in neither."""

    pairs: tuple[Pair, ...]
    alone: tuple[tuple[EngineLook, EngineLook | None], ...]


def plan(looks: Sequence[EngineLook], pairs: Sequence[Pair], good: Sequence[Pair]) -> Plan:
    """As few pairs of the good ones as have every engine in them that can be in one."""
    chosen: list[Pair] = []
    prefills, decodes = set[str](), set[str]()
    for wanted in (2, 1):  # first pairs that bring two new engines, then those that bring one
        for pair in good:
            if not (pair.prefill.generates and pair.decode.generates):
                continue
            p, d = pair.prefill.engine.id, pair.decode.engine.id
            if (p not in prefills) + (d not in decodes) >= wanted:
                chosen.append(pair)
                prefills.add(p)
                decodes.add(d)
    others = {pair.prefill.engine.id: pair.decode for pair in pairs}
    alone = [
        (x, others.get(x.engine.id))
        for x in looks
        if x.generates and x.engine.role.serves(Role.PREFILL) and x.engine.id not in prefills
    ]
    return Plan(tuple(chosen), tuple(alone))


class Trials:
    def __init__(self, ask: Asker, kv: Connector, clock: Clock, ids: IdSource) -> None:
        self._ask = ask
        self._kv = kv
        self._clock = clock
        self._ids = ids
        self._busy: dict[str, asyncio.Lock] = {}

    async def split(self, pair: Pair) -> list[Finding]:
        """One trial at a time on a decode engine, so that its counter can be read."""
        assert pair.model is not None, "a pair without a model is no good pair"
        async with self._busy.setdefault(pair.decode.engine.id, asyncio.Lock()):
            trial = self._trial(pair.prefill, pair.decode, pair.model)
            return await (trial.at_once() if self._kv.order is Order.CONCURRENT else trial.in_turn())

    async def alone(self, prefill: EngineLook, other: EngineLook | None) -> list[Finding]:
        """Whether a prefill engine hands over, where nobody can take it. Nothing is sent that could not be told from
        the reply: a concurrent connector's says nothing."""
        if self._kv.order is Order.CONCURRENT or not self._kv.carries:
            return []
        return await self._trial(prefill, other or prefill, next(iter(prefill.models))).given_back(other)

    def _trial(self, prefill: EngineLook, decode: EngineLook, model: str) -> Trial:
        return Trial(self._ask, self._kv, self._clock, self._ids.request_id(), prefill, decode, model)


class Trial:
    """One attempt."""

    def __init__(
        self, ask: Asker, kv: Connector, clock: Clock, id_: str, prefill: EngineLook, decode: EngineLook, model: str
    ) -> None:
        self._ask = ask
        self._kv = kv
        self._clock = clock
        self._id = id_
        self._ctx = HandoffContext(id_, prefill.engine, decode.engine, clock.now())
        self._request = request(model, prefill.tokens, id_)
        self._about = f"{prefill.engine.id} -> {decode.engine.id}"

    async def in_turn(self) -> list[Finding]:
        try:
            handoff = await self._handed_over()
        except EngineError as e:
            return [self._no_handoff(e)]
        given = ok(Check.PREFILL, f"prefill handed over as {self._kv.name} does", about=self._about)
        return [*([given] if self._kv.carries else []), await self._taken(handoff)]

    async def at_once(self) -> list[Finding]:
        try:
            handoff = self._kv.handoff(self._ctx, None)
        except EngineError as e:
            return [self._no_handoff(e)]
        prefilling = asyncio.create_task(self._prefill())
        taken = await self._taken(handoff)
        try:
            await prefilling
        except EngineError as e:
            return [self._no_handoff(e), taken]
        return [taken]

    async def given_back(self, other: EngineLook | None) -> list[Finding]:
        try:
            handoff = await self._handed_over()
        except EngineError as e:
            return [self._no_handoff(e)]
        said = f"prefill handed over as {self._kv.name} does; {await self._release(handoff, other)}"
        return [ok(Check.PREFILL, said, about=self._ctx.prefill.id)]

    async def _handed_over(self) -> Handoff:
        """Raises EngineError, HandoffInvalid among it."""
        reply = await self._prefill()
        return self._kv.handoff(self._ctx, PrefillReply(reply.params, reply.prompt_tokens, self._clock.now()))

    async def _prefill(self) -> Prefilled:
        body = prefill_body(self._request, self._kv.prefill_params(self._ctx))
        engine = self._ctx.prefill
        headers = {**self._kv.prefill_headers(self._ctx), "x-request-id": leg_id(self._id, 1, "prefill")}
        status, reply = await self._ask.post(engine, PATH, body, headers)
        if status != 200:
            raise EngineBroken(f"prefill engine {engine.id} answered {status}: {words(reply)}", engine=engine.id)
        return parse_prefill_reply(engine.id, reply)

    async def _taken(self, handoff: Handoff) -> Finding:
        engine = self._ctx.decode
        try:
            before = await self._loaded()
            body = decode_body(self._request, self._kv.decode_params(self._ctx, handoff), None)
            status, reply = await self._ask.post(engine, PATH, body, {"x-request-id": leg_id(self._id, 1, "decode")})
            if status != 200:
                return self._not_taken(f"decode answered {status}: {words(reply)}")
            loaded = await self._loaded_since(before)
        except EngineError as e:
            return self._not_taken(e.message)
        if loaded is None:
            return ok(Check.TRANSFER, "decode answered; it does not tell where the KV came from", about=self._about)
        if loaded > 0:
            return ok(Check.TRANSFER, "decode loaded the prompt's KV from prefill", about=self._about)
        return self._not_taken("decode computed the whole prompt again: no KV came from prefill")

    async def _loaded_since(self, before: float | None) -> float | None:
        """Prompt tokens that decode loaded from outside since then; None if it does not count them."""
        until = self._clock.monotonic() + COUNTED_WITHIN
        while True:
            now = await self._loaded()
            grown = None if before is None or now is None else now - before
            if grown is None or grown > 0 or self._clock.monotonic() > until:
                return grown
            await asyncio.sleep(LOOK_EVERY)

    async def _loaded(self) -> float | None:
        status, body = await self._ask.get(self._ctx.decode, "/metrics")
        text = body.decode("utf-8", "replace")
        if status != 200 or _COUNTS not in text:
            return None
        return sum(float(value) for value in _LOADED.findall(text))

    async def _release(self, handoff: Handoff, other: EngineLook | None) -> str:
        """A decode that is refused before anything is computed: prefill is then told to free the blocks."""
        lives = f"what it holds for one prompt lives until its lease ends, {self._kv.lease:g} s"
        if other is None or self._kv.cancel is not CancelPolicy.REFUSED_DECODE:
            return lives
        fields = {"model": next(iter(other.models)), "prompt": self._request.fields["prompt"], "max_tokens": 1, "n": 0}
        body = msgspec.json.encode({**fields, "kv_transfer_params": self._kv.decode_params(self._ctx, handoff)})
        try:
            status, _ = await self._ask.post(other.engine, PATH, body, {"x-request-id": leg_id(self._id, 1, "decode")})
        except EngineError:
            return lives
        if status != 400:
            return lives
        return f"a decode that {other.engine.id} refused gave it back, or, if that runs another connector, {lives}"

    def _no_handoff(self, error: EngineError) -> Finding:
        return fault(
            Check.PREFILL,
            error.message,
            why="every request that is prefilled there fails",
            do=f"start it with {self._kv.name}, as a producer, or set --connector (DUET_CONNECTOR) to what it runs: "
            f"`duet engine thinker --role prefill --connector {self._kv.name}` has the flags",
            about=self._about,
        )

    def _not_taken(self, what: str) -> Finding:
        return fault(
            Check.TRANSFER,
            what,
            why="requests fail there, or pay for their prefill twice; what prefill holds for each lives until "
            f"its lease ends, {self._kv.lease:g} s",
            do=f"start decode with {self._kv.name}, as a consumer, and let it reach the side channel of prefill: "
            f"`duet engine thinker --role decode --connector {self._kv.name}` has the flags",
            about=self._about,
        )


def request(model: str, tokens: Sequence[int] | None, seed: str) -> ClientRequest:
    """A completion of one token. The prompt is new with each seed."""
    prompt: list[int] | str = f"{seed} {PROBE_TEXT}"
    if tokens is not None:
        prompt = list(tokens)
        random.Random(seed).shuffle(prompt)
    body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    return parse(PATH, msgspec.json.encode(body))
