"""Thinkers whose pace is the test's: simulated engines that tell a real Talker, over a real channel, what a case says.

Nothing in a test with these depends on how fast anything is: what must happen first is waited for, and only then is the
next word said.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from common.channel import Publisher
from common.channel.reference import Key, address
from common.conditioning import MEDIA, STAGE, frame_rows
from engines.sim.answer import Answer, Delta, Prefilled
from engines.sim.ask import Ask
from engines.sim.engine import SimEngine
from engines.sim.runner import running
from tests.contract.talker.oracle import Case
from tests.e2e.speech.chain import body_of, gateway_of
from tests.integration.spoken import Heard


class Telling(SimEngine):
    """Its clients read made-up words, one for each token of `case`; Talkers are told the case's own.

    `may_say` is how many tokens it may have said by now, None for all.
    """

    def __init__(self, publisher: Publisher, case: Case) -> None:
        super().__init__(model="tiny", channel=address(publisher.endpoint))
        self._publisher = publisher
        self._case = case
        self._moved = asyncio.Condition()
        self.may_say: int | None = None

    async def let_say(self, tokens: int | None) -> None:
        async with self._moved:
            self.may_say = tokens
            self._moved.notify_all()

    async def answer(self, ask: Ask, prompts: list[Prefilled]) -> AsyncIterator[tuple[Answer, Delta]]:
        """One request at a time: whose it is, is the newest call's to say."""
        told = self.calls[-1].body.get("vllm_xargs", {}).get("duet_conditioning")
        key = Key(told, STAGE) if told else None
        if key:
            self._publisher.publish(key, prompt_rows(self._case, heard=self.calls[-1].leg != "decode"))
        said = 0
        try:
            async for step in super().answer(ask, prompts):
                await self._turn(said)
                if key and said:
                    tell(self._publisher, key, self._case, said - 1, said)
                said += 1
                yield step
        finally:
            if key:
                self._publisher.close(key)

    async def _turn(self, token: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.may_say is None or token < self.may_say)


def prompt_rows(case: Case, *, heard: bool = True) -> dict[str, Any]:
    """A frame with the whole prompt; `heard` with its hidden states of sound, as prefill has them."""
    if not (heard and case.media_at):
        return frame_rows(len(case.prompt), 0, case.prompt)
    import torch

    from engines.channel import to_rows

    return frame_rows(len(case.prompt), 0, case.prompt, case.media_at, **{MEDIA: to_rows(torch.tensor(case.media))})


def tell(thinker: Publisher, key: Key, case: Case, begin: int, end: int | None = None) -> None:
    """Said tokens of these numbers. The last sampled one is never told."""
    for at, token in list(enumerate(case.said[:-1]))[begin:end]:
        thinker.publish(key, frame_rows(len(case.prompt), len(case.prompt) + at, [token]))


@dataclass(frozen=True)
class Paced:
    """A gateway over two such Thinkers, and real Talkers and Code2Wavs."""

    case: Case
    decode: Telling
    client: httpx.AsyncClient

    @asynccontextmanager
    async def stream(self, **fields: Any) -> AsyncIterator[tuple[Heard, AsyncIterator[str]]]:
        """A streamed answer, and the kinds of its events as they come."""
        heard = Heard()
        body = {**body_of(self.case), "stream": True, "stream_options": {"include_usage": True}, **fields}
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            yield heard, (heard.take(line) async for line in reply.aiter_lines() if line)


@asynccontextmanager
async def paced(
    redis_url: str, case: Case, talkers: Sequence[str], code2wavs: Sequence[str], **options: Any
) -> AsyncIterator[Paced]:
    """`talkers` and `code2wavs` are URLs, `options` the gateway's."""
    async with AsyncExitStack() as stack:
        publisher = stack.enter_context(Publisher())
        prefill, decode = Telling(publisher, case), Telling(publisher, case)
        urls = [await stack.enter_async_context(running(engine)) for engine in (prefill, decode)]
        gateway = gateway_of(
            redis_url, prefill=urls[:1], decode=urls[1:], talkers=talkers, code2wavs=code2wavs, **options
        )
        yield Paced(case, decode, await stack.enter_async_context(gateway))
