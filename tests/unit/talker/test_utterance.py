"""A speech request with a scripted engine: what is told of it, and how its stream of codes ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from common.channel import Publisher
from common.channel.reference import Key
from common.conditioning import STAGE, frame_rows
from common.errors import BadRequest
from engines.talker.ask import Ask
from engines.talker.errors import ScriptInvalid, SpeechFailed, SpeechUnsupported, ThinkerLost
from engines.talker.utterance import GONE, Done, Event, Frames, Speaker, Started
from tests.unit.talker.telling import ASSISTANT, HEADER, PICTURE, SOUND, START, USER, turn

CONFIG = SimpleNamespace(
    im_start_token_id=START,
    user_token_id=USER,
    assistant_token_id=ASSISTANT,
    audio_token_id=SOUND,
    image_token_id=PICTURE,
    video_token_id=PICTURE,
    codec_pad_id=90,
    codec_eos_token_id=91,
    speaker_id={"ethan": 92, "aiden": 93},
)
PROMPT = turn(USER, 20) + HEADER
Make = Callable[["Engine"], Speaker]
THINKER = Key("r", STAGE)


class Engine:
    """Gives `tokens` outputs of one token each, then the reason; with no reason it goes on for ever, as vLLM's does
    when it is shut down."""

    def __init__(self, tokens: int, reason: str | None) -> None:
        self.errored = False
        self.model_config = SimpleNamespace(hf_config=CONFIG, max_model_len=64)
        self.asked: list[tuple[int, Any]] = []
        self.ended: list[tuple[str, str | None]] = []
        self.aborted = False
        self._tokens, self._reason = tokens, reason

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncGenerator[Any, None]:
        self.asked.append((len(prompt["prompt_token_ids"]), params))
        try:
            for at in range(self._tokens):
                reason = self._reason if at == self._tokens - 1 else None
                yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=[1], finish_reason=reason)])
            if self._reason is None:
                await asyncio.Event().wait()
        finally:
            self.aborted = self._reason is None

    async def collective_rpc(self, method: str, args: tuple[str, str | None]) -> None:
        assert method == "end_codes"
        self.ended.append(args)


@pytest.fixture
def thinker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    monkeypatch.setenv("DUET_CHANNEL", f"ipc://{tmp_path}/codes")
    with Publisher() as publisher:
        yield publisher


def ask(thinker: Publisher, **fields: Any) -> Ask:
    return Ask(request_id="r", conditioning=(str(thinker.reference(THINKER)),), **fields)


def tell(thinker: Publisher, prompt: list[int], *said: int) -> None:
    thinker.publish(THINKER, frame_rows(len(prompt), 0, [*prompt, *said]))


@pytest.fixture
async def speaker() -> AsyncGenerator[Callable[[Engine], Speaker], None]:
    made: list[Speaker] = []

    def make(engine: Engine) -> Speaker:
        made.append(Speaker(engine))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def events(speaker: Speaker, asked: Ask) -> list[Event]:
    found = [event async for event in speaker.speak(asked)]
    await asyncio.sleep(0)
    return found


async def until_lost(speaker: Speaker, thinker: Publisher) -> None:
    """Speaks, and lets the Thinker die after the first frame."""
    async for event in speaker.speak(ask(thinker)):
        if event == Frames(1):
            thinker.close(THINKER, "it burnt")


async def test_a_whole_speech(thinker: Publisher, speaker: Make) -> None:
    pytest.importorskip("vllm")
    tell(thinker, PROMPT, 30, 31)
    thinker.close(THINKER)
    engine = Engine(4, "stop")
    started, *rest = await events(speaker(engine), ask(thinker, seed=7))
    assert isinstance(started, Started)
    assert "stage=talker" in started.codes
    assert rest == [Frames(1), Frames(2), Done(3, "stop")]
    [(length, params)] = engine.asked
    assert length == started.prompt_tokens == 6 + 3 + 6
    assert (params.seed, params.extra_args["tts_local_seed"], params.stop_token_ids) == (7, 7, [91])
    assert params.max_tokens == 64 - length
    assert engine.ended == [("r", None)]


async def test_one_token_has_nothing_to_say(thinker: Publisher, speaker: Make) -> None:
    pytest.importorskip("vllm")
    tell(thinker, PROMPT)
    thinker.close(THINKER)
    engine = Engine(1, "stop")
    _, done = await events(speaker(engine), ask(thinker))
    assert done == Done(0, "stop")
    assert (engine.asked, engine.ended) == ([], [("r", None)])


async def test_a_thinker_that_dies_ends_its_speech_and_the_codes(thinker: Publisher, speaker: Make) -> None:
    pytest.importorskip("vllm")
    tell(thinker, PROMPT, 30)
    engine = Engine(2, None)
    with pytest.raises(ThinkerLost, match="it burnt"):
        await until_lost(speaker(engine), thinker)
    await asyncio.sleep(0)
    assert engine.aborted
    [(_, why)] = engine.ended
    assert "it burnt" in (why or "")


async def test_a_client_that_leaves_ends_both(thinker: Publisher, speaker: Make) -> None:
    pytest.importorskip("vllm")
    tell(thinker, PROMPT, 30)
    engine = Engine(2, None)
    async with aclosing(speaker(engine).speak(ask(thinker))) as speech:
        async for event in speech:
            if event == Frames(1):
                break
    await asyncio.sleep(0)
    assert engine.aborted
    assert engine.ended == [("r", GONE)]


@pytest.mark.parametrize("waits_for", ["prompt", "text", "frames"])
async def test_an_engine_that_is_shut_down_ends_what_waits(thinker: Publisher, speaker: Make, waits_for: str) -> None:
    """It says nothing to anybody. The Thinker is there, and goes on saying nothing."""
    pytest.importorskip("vllm")
    if waits_for != "prompt":
        tell(thinker, PROMPT, *([30] if waits_for == "frames" else []))
    engine = Engine(2, None)
    speech = speaker(engine).speak(ask(thinker))
    for _ in range({"prompt": 0, "text": 1, "frames": 2}[waits_for]):
        await anext(speech)
    next_ = asyncio.ensure_future(anext(speech))
    await asyncio.wait({next_}, timeout=0.3)
    assert not next_.done()
    engine.errored = True
    async with asyncio.timeout(30):
        with pytest.raises(SpeechFailed, match="the Talker's engine has ended"):
            await next_
    await asyncio.sleep(0)
    assert engine.aborted == (waits_for == "frames")
    assert engine.ended == [("r", "the Talker's engine has ended")]


async def test_an_engine_that_was_shut_down_before_it_was_asked_is_told(thinker: Publisher, speaker: Make) -> None:
    engine = Engine(2, None)
    engine.errored = True
    async with asyncio.timeout(30):
        with pytest.raises(SpeechFailed, match="the Talker's engine has ended"):
            await events(speaker(engine), ask(thinker))


async def test_an_engine_that_aborts_is_no_end_of_speech(thinker: Publisher, speaker: Make) -> None:
    pytest.importorskip("vllm")
    tell(thinker, PROMPT, 30)
    engine = Engine(2, "abort")
    with pytest.raises(SpeechFailed, match="ended with 'abort' after 2 tokens"):
        await events(speaker(engine), ask(thinker))


@pytest.mark.parametrize(
    ("prompt", "fields", "error", "why"),
    [
        (turn(USER, 20), {}, ScriptInvalid, "0 assistant turns"),
        (turn(USER, PICTURE) + HEADER, {}, SpeechUnsupported, "pictures"),
        (turn(USER, *[20] * 60) + HEADER, {}, SpeechUnsupported, "--max-model-len, 64"),
        (PROMPT, {"speaker": "nobody"}, SpeechUnsupported, "expected one of aiden, ethan"),
        (PROMPT, {"temperature": 1.5}, BadRequest, "too hot"),
    ],
)
async def test_what_cannot_be_spoken_is_refused_before_it_starts(
    thinker: Publisher,
    speaker: Make,
    monkeypatch: pytest.MonkeyPatch,
    prompt: list[int],
    fields: dict[str, Any],
    error: type[BadRequest],
    why: str,
) -> None:
    def sampling(asked: Ask, config: Any, room: int) -> Any:
        raise BadRequest("too hot", param="temperature")

    monkeypatch.setattr(Ask, "sampling", sampling)
    tell(thinker, prompt, 30)
    engine = Engine(1, "stop")
    with pytest.raises(error, match=why):
        await anext(speaker(engine).speak(ask(thinker, **fields)))
    assert not engine.asked
