"""One speech request, from the Thinker's first word to the last frame, as events.

prompt known ─> started ─> text there ─> vLLM's request ─> frames, frames, … ─> done
    └────────────────────────┴───────────────┴ Thinker lost, client gone, engine failed or shut down: aborted
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common.channel import Puller
from common.errors import DuetError
from engines.channel import reference
from engines.talker.ask import Ask
from engines.talker.config import marks_of
from engines.talker.downfall import Downfall, unless
from engines.talker.errors import SpeechFailed, SpeechUnsupported, ThinkerLost
from engines.talker.outbox import STAGE
from engines.talker.script import Script
from engines.talker.thinker import Thinker

if TYPE_CHECKING:
    from vllm import SamplingParams

GONE = "cancelled"
"""How the stream of codes ends whose client left."""


@dataclass(frozen=True, slots=True)
class Started:
    """`codes` is the reference of the stream of codes; `prompt_tokens` is the Talker's prompt."""

    codes: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Frames:
    """So many frames have been made by now."""

    frames: int


@dataclass(frozen=True, slots=True)
class Done:
    """`reason` is `stop` or `length`, as of any completion."""

    frames: int
    reason: str


Event = Started | Frames | Done


class Speaker:
    """What all requests of one server share. `engine` is vLLM's engine client."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._config = engine.model_config.hf_config
        self._room = int(engine.model_config.max_model_len)
        self._puller: Puller | None = None
        self._downfall = Downfall(engine)
        self._ending: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Ends what is still being listened to."""
        self._downfall.close()
        if self._puller is not None:
            self._puller.close()

    async def speak(self, ask: Ask) -> AsyncGenerator[Event, None]:
        """Events in order, `Started` first and `Done` last. Raises DuetError. However it ends, the codes' stream does.

        An answer of one token has no text to speak: no frames, and done.
        """
        ask.speech(self._config)
        if self._puller is None:
            self._puller = Puller()  # in the loop that serves
        ended: str | None = GONE
        down = self._downfall.coming()
        try:
            async with Thinker(self._puller, ask.conditioning, marks_of(self._config)) as thinker:
                feed = thinker.feed
                await unless(thinker.until(lambda: feed.script is not None), down)
                assert feed.script is not None
                params = self._params(ask, feed.script)
                yield Started(str(reference(ask.request_id, STAGE)), feed.script.length)
                await unless(thinker.until(lambda: feed.can_start() or feed.conditioning.ended), down)
                if not feed.conditioning.spoken(feed.script.text_from):
                    yield Done(0, "stop")
                else:
                    async with aclosing(self._frames(ask, params, feed.script, thinker)) as events:
                        async for event in events:
                            yield event
            ended = None
        except DuetError as e:
            ended = e.message
            raise
        except Exception as e:
            ended = f"{type(e).__name__}: {e}"
            raise SpeechFailed(f"request {ask.request_id}: {ended}") from e
        finally:
            self._end(ask.request_id, ended)

    def _params(self, ask: Ask, script: Script) -> SamplingParams:
        """Raises BadRequest."""
        if script.length >= self._room:
            raise SpeechUnsupported(
                f"the Talker's prompt has {script.length} tokens: expected fewer than --max-model-len, {self._room}"
            )
        return ask.sampling(self._config, self._room - script.length)

    async def _frames(
        self, ask: Ask, params: SamplingParams, script: Script, thinker: Thinker
    ) -> AsyncGenerator[Event, None]:
        prompt = {"prompt_token_ids": [self._config.codec_pad_id] * script.length}
        tokens, reason = 0, None
        lost = asyncio.ensure_future(thinker.until_lost())
        try:
            async with aclosing(self._engine.generate(prompt, params, ask.request_id)) as outputs:
                while (output := await unless(anext(outputs, None), lost, self._downfall.coming())) is not None:
                    answer = output.outputs[0]
                    tokens += len(answer.token_ids)
                    reason = answer.finish_reason
                    if reason is None and tokens > 1:
                        yield Frames(tokens - 1)
        finally:
            lost.cancel()
        if reason not in ("stop", "length"):
            if why := thinker.feed.lost():
                raise ThinkerLost(why)
            raise SpeechFailed(f"request {ask.request_id} ended with {reason!r} after {tokens} tokens")
        yield Done(max(tokens - 1, 0), reason)

    def _end(self, request: str, error: str | None) -> None:
        """Tells the workers, from a task of its own: the caller's may be cancelled."""
        task = asyncio.ensure_future(self._engine.collective_rpc("end_codes", args=(request, error)))
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # a dead engine's streams end with its process
