"""How long a speech may be silent, and what ends a silence."""

from __future__ import annotations

import asyncio
import time

import pytest

from common.engine import Role
from gateway.dispatch.speech import silence as silence_
from gateway.dispatch.speech.silence import AHEAD, Silence

SOON, ENOUGH = 0.1, 20.0


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_while_text_is_coming_there_is_no_bound() -> None:
    silence = Silence(SOON, SOON)
    waiting = asyncio.ensure_future(silence.until(never()))
    done, _ = await asyncio.wait({waiting}, timeout=4 * SOON)
    assert not done
    silence.text_is_out()
    silence.text_is_out()
    assert await waiting is False


async def test_what_comes_ends_the_wait_whenever_it_comes() -> None:
    silence = Silence(ENOUGH, ENOUGH)
    for out in (False, True):
        work = never()
        asyncio.get_running_loop().call_later(SOON, work.set_result, None)
        assert await silence.until(never(), work)
        if not out:
            silence.text_is_out()


async def test_what_is_there_already_is_no_silence() -> None:
    silence = Silence(0.0, 0.0)
    silence.text_is_out()
    work = never()
    work.set_result(None)
    assert await silence.until(work)


async def test_the_first_frame_has_a_bound_of_its_own_and_a_new_talker_too() -> None:
    silence = Silence(ENOUGH, SOON)
    silence.text_is_out()
    assert silence.bound == ENOUGH
    silence.heard()
    assert silence.bound == SOON
    assert await silence.until(never()) is False
    silence.starts_anew(Role.TALKER)
    assert silence.bound == ENOUGH


async def test_each_frame_gives_time_anew() -> None:
    silence = Silence(ENOUGH, 1.0)
    silence.text_is_out()
    loop, work = asyncio.get_running_loop(), never()
    for n in range(1, 7):
        loop.call_later(0.25 * n, silence.heard)
    loop.call_later(1.75, work.set_result, None)
    assert await silence.until(work)


async def test_while_this_process_stands_still_nobody_is_silent() -> None:
    silence, work = Silence(ENOUGH, 1.0), never()
    silence.text_is_out()
    silence.heard()
    waiting = asyncio.ensure_future(silence.until(work))
    await asyncio.sleep(0)
    time.sleep(1.0)  # noqa: ASYNC251 - the whole loop is to stand still
    asyncio.get_running_loop().call_later(SOON, work.set_result, None)
    assert await waiting


async def test_a_code2wav_that_makes_nothing_of_many_frames_is_silent() -> None:
    silence = Silence(ENOUGH, 1.0)
    silence.text_is_out()
    waiting = asyncio.ensure_future(silence.until(never()))
    for _ in range(200):
        silence.heard(10)
        if (await asyncio.wait({waiting}, timeout=0.05))[0]:
            break
    assert waiting.done(), "the Talker goes on, and nothing is made of it"
    assert await waiting is False
    assert silence.is_code2wavs


async def test_a_code2wav_may_want_some_frames_for_one_sound() -> None:
    silence, work = Silence(ENOUGH, SOON), never()
    silence.text_is_out()
    waiting = asyncio.ensure_future(silence.until(work))
    for _ in range(AHEAD):
        silence.heard()
        await asyncio.sleep(SOON / 10)
        assert not silence.is_code2wavs
    work.set_result(None)
    assert await waiting


@pytest.mark.parametrize("role", [Role.TALKER, Role.CODE2WAV])
async def test_who_is_out_has_less_time(role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence_, "OUT_FOR", SOON)
    silence = Silence(ENOUGH, ENOUGH)
    silence.text_is_out()
    silence.is_out(role)
    assert await silence.until(never()) is False
    assert silence.is_code2wavs is (role is Role.CODE2WAV)


async def test_who_is_out_and_heard_all_the_same_has_its_time_again() -> None:
    silence = Silence(60.0, 60.0)
    for role, word in ((Role.TALKER, silence.heard), (Role.CODE2WAV, silence.sounded)):
        silence.is_out(role)
        assert silence.bound < 60.0
        word()
        assert silence.bound == 60.0
        silence.is_out(role)
        silence.starts_anew(role)
        assert silence.bound == 60.0
