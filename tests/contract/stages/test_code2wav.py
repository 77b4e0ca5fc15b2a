"""What the gateway relies on in a Code2Wav: all of the sound, the same from any sample on, an end that can be told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from common.engine import Engine, Role
from common.errors import EngineBroken, EngineError, EngineRefused
from gateway.dispatch.speech.staff import CODES_GONE
from gateway.dispatch.speech.vocode import vocode
from tests.contract.stages.conftest import DEADLINES, Port
from tests.fakes.stages import SAMPLES, TAIL

FRAMES = 34
LENGTH = FRAMES * SAMPLES - TAIL
WITHIN = 60.0
"""Seconds after which a test has failed."""

pytestmark = pytest.mark.timeout(600)


async def test_the_length_is_what_the_frames_give(port: Port) -> None:
    port.put("a", FRAMES)
    port.end("a")
    assert len(await port.whole("a")) == 2 * LENGTH


async def test_the_sound_is_the_same_from_any_sample_on(port: Port) -> None:
    port.put("a", FRAMES)
    port.end("a")
    whole = await port.whole("a")
    for sample in (1, TAIL, SAMPLES - TAIL, 4 * SAMPLES - TAIL, 20_001, LENGTH - 1):
        assert _alike(await port.whole("a", sample), whole[2 * sample :]), f"from sample {sample}"
    assert await port.whole("a", LENGTH) == b""


async def test_sound_comes_before_the_codes_end(port: Port) -> None:
    port.put("a", 10)
    async with aclosing(port.sound("a")) as sound:
        first = await anext(aiter(sound))
        assert first
        port.put("a", FRAMES, 10)
        port.end("a")
        rest = b"".join([part async for part in sound])
    assert len(first + rest) == 2 * LENGTH


async def test_codes_without_a_frame_are_no_sound(port: Port) -> None:
    port.end("a")
    assert await port.whole("a") == b""


@pytest.mark.parametrize("frames", [FRAMES - 1, FRAMES + 1, 0])
async def test_sound_of_another_length_than_the_talkers_frames_have_is_broken(port: Port, frames: int) -> None:
    port.put("a", FRAMES)
    port.end("a", frames=frames)
    expected = max(0, frames * SAMPLES - TAIL)
    known = "went on after" if frames < FRAMES else f"ended at sample {LENGTH}; expected {expected},"
    with pytest.raises(EngineBroken, match=f"{known} the sound of {frames} frames"):
        await port.whole("a")


async def test_who_is_to_begin_behind_the_end_is_not_to_blame(port: Port) -> None:
    """The Talker is, which made fewer frames than another one before it."""
    port.put("a", 2)
    port.end("a")
    with pytest.raises(EngineBroken, match=r"Talker talker made 2 frames, .* another's had reached 9000") as caught:
        await port.whole("a", 9000)
    assert caught.value.engine == "talker"


async def test_one_frame_can_be_resumed(port: Port) -> None:
    port.put("a", 1)
    port.end("a")
    whole = await port.whole("a")
    assert len(whole) == 2 * (SAMPLES - TAIL)
    for sample in (1, 700, SAMPLES - TAIL - 1):
        assert _alike(await port.whole("a", sample), whole[2 * sample :]), f"from sample {sample}"


async def test_sound_is_resumed_while_its_last_frame_is_yet_to_come(port: Port) -> None:
    """What is asked for begins in a frame that nobody has made when it is asked for."""
    port.put("b", FRAMES)
    port.end("b")
    whole = await port.whole("b")
    begin = LENGTH - SAMPLES + 7
    port.put("a", FRAMES - 1)
    rest = asyncio.ensure_future(port.whole("a", begin))
    done, _ = await asyncio.wait({rest}, timeout=0.2)
    assert not done
    port.put("a", FRAMES, FRAMES - 1)
    port.end("a")
    assert _alike(await rest, whole[2 * begin :])


async def test_codes_that_fail_at_once_are_refused_by_a_code(port: Port) -> None:
    port.end("a", "the Talker died")
    with pytest.raises(EngineRefused) as caught:
        await port.whole("a")
    assert caught.value.code in CODES_GONE


async def test_codes_that_fail_later_break_the_sound_off(port: Port) -> None:
    port.put("a", 10)
    heard: list[bytes] = []

    async def listen() -> None:
        async for part in port.sound("a"):
            heard.append(part)
            port.end("a", "the Talker died")

    with pytest.raises(EngineBroken):
        await listen()
    port.put("b", 10)
    port.end("b")
    before = b"".join(heard)
    assert _alike(before, (await port.whole("b"))[: len(before)]), "what came before is right"


async def test_what_is_no_reference_is_refused(port: Port) -> None:
    with pytest.raises(EngineRefused) as caught:
        async for _ in vocode(
            port.client, port.engine, "call", replace(port.told("a"), reference="http://x"), 0, DEADLINES
        ):
            pass
    assert 400 <= caught.value.status < 500


async def test_nobody_there_is_an_engine_error(port: Port) -> None:
    nobody = Engine.at("http://127.0.0.1:9", Role.CODE2WAV)
    with pytest.raises(EngineError):
        async for _ in vocode(port.client, nobody, "call", port.told("a"), 0, DEADLINES):
            pass


async def test_who_stops_listening_ends_it(port: Port) -> None:
    port.put("a", 10)
    async with asyncio.timeout(WITHIN):
        async with aclosing(port.sound("a")) as sound:
            await anext(aiter(sound))


def _alike(one: bytes, other: bytes) -> bool:
    """Within 1e-3 of full scale: other chunks round otherwise."""
    import numpy as np

    a, b = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    return len(a) == len(b) and (not len(a) or int(abs(a - b).max()) <= 33)
