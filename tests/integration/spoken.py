"""A gateway before simulated Thinkers, fake Talkers and fake Code2Wavs; and its spoken answers, read as clients do."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.stages import FakeCode2Wav, FakeTalker, code2wav_server, talker_server
from tests.integration.conftest import MODEL, Pair, World

CHANNEL = "duet+ipc:///nowhere/rows"
AUDIO: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "ethan", "format": "pcm16"}}


@dataclass
class Heard:
    """One streamed answer. `order` has what each event brought, in order."""

    events: list[dict[str, Any]] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    transcript: str = ""
    base64: str = ""
    ids: list[str] = field(default_factory=list)
    expires_at: list[int] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: bool = False

    @property
    def pcm(self) -> bytes:
        return base64.b64decode(self.base64, validate=True)

    def take(self, line: str) -> str:
        """What an event brought."""
        assert not self.done
        if line == "data: [DONE]":
            self.done = True
            return "done"
        event = json.loads(line.removeprefix("data: "))
        self.events.append(event)
        self.order.append(self._kind(event))
        return self.order[-1]

    def _kind(self, event: dict[str, Any]) -> str:
        if "error" in event:
            self.error = event["error"]
            return "error"
        if not event["choices"]:
            self.usage = event["usage"]
            return "usage"
        (choice,) = event["choices"]
        if choice["finish_reason"]:
            self.finish.append(choice["finish_reason"])
            return "finish"
        audio = choice["delta"].get("audio", {})
        assert not choice["delta"].get("content"), "text is the transcript"
        self.transcript += audio.get("transcript", "")
        self.base64 += audio.get("data", "")
        self.ids += [audio["id"]] if "id" in audio else []
        self.expires_at += [audio["expires_at"]] if "expires_at" in audio else []
        return next((kind for kind in ("data", "expires_at", "transcript") if kind in audio), "role")


@dataclass
class Spoken:
    """Everything that one deployment with speech is made of."""

    pair: Pair
    talkers: list[FakeTalker]
    code2wavs: list[FakeCode2Wav]

    def body(self, **fields: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hello"}]
        return {"model": MODEL, "messages": messages, "max_tokens": 8, **AUDIO, **fields}

    @asynccontextmanager
    async def stream(self, **fields: Any) -> AsyncIterator[tuple[Heard, AsyncIterator[str]]]:
        """A streamed answer, and the kinds of its events as they come."""
        heard = Heard()
        body = self.body(stream=True, **fields)
        async with self.pair.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            yield heard, (heard.take(line) async for line in reply.aiter_lines() if line)

    async def heard(self, **fields: Any) -> Heard:
        """A whole streamed answer."""
        async with self.stream(**fields) as (heard, kinds):
            async for _ in kinds:
                pass
        assert heard.done
        return heard

    async def asked(self, **fields: Any) -> Any:
        """An answer that is not streamed."""
        return await self.pair.client.post("/v1/chat/completions", json=self.body(**fields))


async def spoken_world(
    world: World, *, talkers: int = 1, code2wavs: int = 1, frames: int = 10, engines: Any = None, **options: Any
) -> Spoken:
    """`engines` are the simulated Thinkers' settings, `options` the gateway's."""
    await world.engines(**{"channel": CHANNEL, **(engines or {})})
    speaking = [await world.enter(talker_server(FakeTalker(frames=frames))) for _ in range(talkers)]
    vocoding = [await world.enter(code2wav_server(FakeCode2Wav())) for _ in range(code2wavs)]
    urls = {"talkers": tuple(t.url for t in speaking), "code2wavs": tuple(c.url for c in vocoding)}
    return Spoken(await world.gateway(**urls, **options), speaking, vocoding)
