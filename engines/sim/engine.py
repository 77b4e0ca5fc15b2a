"""One engine's state: what it was asked, what it holds, and the tokens it makes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from engines.sim import handoff, words
from engines.sim.answer import Answer, Delta, Prefilled
from engines.sim.ask import Ask, out_of_vocabulary
from engines.sim.calls import Call
from engines.sim.faults import Fault, Faults
from engines.sim.handoff import Fate
from engines.sim.kv import FREED, KvShelf

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(slots=True)
class Latency:
    """Seconds: for each prompt token that is computed, between two tokens, for each prompt token that is fetched, and
    from a stream's headers until what they promise is begun with, where KV is to be fetched."""

    per_prompt_token: float = 0.0
    between_tokens: float = 0.0
    per_fetched_token: float = 0.0
    until_fetched: float = 0.0


class GenerationFailed(Exception):
    """What vLLM tells by a status, or, once the stream has begun, by an error event."""

    def __init__(self, message: str, *, status: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass
class SimEngine:
    """`port` is where it serves: its handoffs name it. Set faults with `rule`, read what came in `calls`.

    It takes every leg, whatever asks. `end_every` makes one of so many tokens the end token; 0 lets every answer run
    to its length. With `api_key`, `/v1/…` wants it as a bearer token. `dead` is set by what kills a real engine.
    """

    model: str = "sim"
    host: str = "127.0.0.1"
    port: int = 0
    max_model_len: int = 4096
    lease: float = 30.0
    latency: Latency = field(default_factory=Latency)
    end_every: int = 0
    recompute: bool = False
    """Whether KV that cannot be fetched is computed again: vLLM's `kv_load_failure_policy`; `fail` otherwise."""
    api_key: str | None = None
    splits: bool = True
    """Whether it has a KV connector; without one it reads nothing in `kv_transfer_params`, as vLLM does."""
    details: bool = True
    """Whether usage has `prompt_tokens_details`: vLLM's `--enable-prompt-tokens-details`."""
    rotated: int = 0
    """A tokenizer of its own for prompts that are text (`words.encode`)."""
    channel: str | None = None
    """What its identity tells as the place where a Talker hears it, `duet+ipc:///path` say; None tells nothing."""
    told: Mapping[str, Any] | None = None
    """What else its identity tells; None for an engine that has none, as stock vLLM, unless it has a channel."""
    calls: list[Call] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    sources: Counter[str] = field(default_factory=Counter)
    """Prompt tokens by source, as vLLM's metric counts them."""
    generated: int = 0
    running: int = 0
    failed_transfers: int = 0
    dead: bool = False
    id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.kv = KvShelf(self.lease)
        self._transfers: set[asyncio.Task[Mapping[str, Any]]] = set()

    def rule(self, mode: Any, **values: Any) -> None:
        self.faults.append(Fault.of({"mode": mode, **values}))

    async def prefill(self, ask: Ask) -> list[Prefilled]:
        """The KV of each prompt, computed or fetched. Raises GenerationFailed; waits for ever where vLLM does."""
        if self.dead:
            raise GenerationFailed(DEAD)
        beyond = next((i for i in map(out_of_vocabulary, ask.prompts) if i is not None), None)
        if beyond is not None:
            raise GenerationFailed(f"Token id {beyond} is out of vocabulary", status=400)
        if not all(ask.prompts):
            raise GenerationFailed("The decoder prompt cannot be empty", status=400)
        return [await self._prefill(ask.kv, prompt) for prompt in ask.prompts]

    async def answer(self, ask: Ask, prompts: list[Prefilled]) -> AsyncIterator[tuple[Answer, Delta]]:
        """Every choice of every prompt, a token of each in turn."""
        live = [
            Answer(at * ask.n + i, prompt, ask, ask.limits[at], self.end_every)
            for at, prompt in enumerate(prompts)
            for i in range(ask.n)
        ]
        while live:
            for one in live:
                self.generated += 1
                yield one, one.step()
            live = [one for one in live if one.finish is None]
            if live and self.latency.between_tokens:
                await asyncio.sleep(self.latency.between_tokens)

    def handoff(self, request_id: str, ask: Ask, prompts: list[Prefilled]) -> dict[str, Any] | None:
        """The first prompt's, as vLLM does it: a list of prompts cannot be handed over."""
        if not self.splits or not ask.kv.get("do_remote_decode"):
            return None
        first = prompts[0]
        inner = f"{request_id}{'' if ask.chat else '-0'}-{uuid4().hex[:8]}"
        self.kv.put(inner, len(first.tokens), first.state)
        return handoff.returned(
            engine=self.id,
            request=inner,
            host=self.host,
            port=self.port,
            tokens=len(first.tokens),
            blocks=list(range(1, 1 + -(-len(first.tokens) // handoff.BLOCK))),
            cached=0,
        )

    async def refused(self, body: Any) -> None:
        """A decode that was refused lets the prefill engine free what it holds for it, as vLLM does."""
        kv = body.get("kv_transfer_params") if isinstance(body, dict) else None
        if (
            self.splits
            and isinstance(kv, dict)
            and kv.get("do_remote_prefill")
            and all(name in kv for name in handoff.ADDRESS)
        ):
            try:
                await self._ask_holder(kv, "release")
            except (httpx.HTTPError, GenerationFailed):
                self.failed_transfers += 1

    async def _prefill(self, kv: Mapping[str, Any], prompt: tuple[int, ...]) -> Prefilled:
        fate = handoff.fate(kv, len(prompt)) if self.splits else Fate.LOCAL
        if fate is Fate.DIES:
            self.dead = True
            raise GenerationFailed(DEAD)
        if fate is Fate.HANGS:
            await asyncio.Event().wait()
        if fate is Fate.LOADS:
            state = await self._fetched(kv, len(prompt))
            if state is not None and len(prompt) > 1:  # the last token is computed in any case; of one, no more is left
                self.sources["external_kv_transfer"] += len(prompt)
                return Prefilled(prompt, state, int(kv.get("remote_prefill_cached_tokens") or 0))
        await asyncio.sleep(self.latency.per_prompt_token * len(prompt))
        self.sources["local_compute"] += len(prompt)
        return Prefilled(prompt, words.absorb(0, prompt), 0)

    async def _fetched(self, kv: Mapping[str, Any], prompt: int) -> int | None:
        """The KV that the handoff names, right or not; None if it is to be computed again.

        As in vLLM, prefill frees it also where the request is aborted: it is told so where the fetch has not begun,
        and one that has goes on.
        """
        try:
            await asyncio.sleep(self.latency.until_fetched)
        except asyncio.CancelledError:
            self._transfer(kv, "release")
            raise
        try:
            found = await asyncio.shield(self._transfer(kv, "fetch"))
        except (httpx.HTTPError, GenerationFailed):
            self.failed_transfers += 1
            if self.recompute:
                return None
            raise GenerationFailed("Internal server error") from None
        await asyncio.sleep(self.latency.per_fetched_token * prompt)
        return int(found.get("state", FREED))

    def _transfer(self, kv: Mapping[str, Any], what: str) -> asyncio.Task[Mapping[str, Any]]:
        """It outlives whoever waits for it."""
        task = asyncio.create_task(self._ask_holder(kv, what))
        self._transfers.add(task)
        task.add_done_callback(self._transferred)
        return task

    def _transferred(self, task: asyncio.Task[Mapping[str, Any]]) -> None:
        self._transfers.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; of an aborted request, nobody does

    async def _ask_holder(self, kv: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """NIXL's side channel, as far as there is one here. The holder knows its own engine id and no other."""
        url = f"http://{kv['remote_host']}:{kv['remote_port']}/sim/kv/{what}"
        names = {"engine": kv["remote_engine_id"], "request": kv["remote_request_id"]}
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            reply = await client.post(url, json=names)
        if reply.status_code != 200:
            raise GenerationFailed(f"{url} answered with {reply.status_code}")
        found: Mapping[str, Any] = reply.json()
        return found
