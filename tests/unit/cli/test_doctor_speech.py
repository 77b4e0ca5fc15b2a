from __future__ import annotations

from typing import Any

import pytest

from cli.doctor import speech
from cli.doctor.ask import EngineLook
from cli.doctor.finding import Check, Severity
from common.engine import Role
from tests.unit.cli.doctoring import bad, seen, whole

CHANNEL = {"channel": "duet+ipc:///rows"}
VOICES = {"stage": "talker", "speakers": ["ethan", "chelsie"]}
FAULT = Severity.FAULT
THINKERS = [seen("p", Role.PREFILL, identity=CHANNEL), seen("d", Role.DECODE, identity=CHANNEL)]


def talker(**more: Any) -> EngineLook:
    return seen("t", Role.TALKER, **{"identity": VOICES, **more})


def code2wav(**more: Any) -> EngineLook:
    return seen("c", Role.CODE2WAV, **{"identity": {"stage": "code2wav"}, **more})


def test_where_nobody_speaks_nothing_is_said() -> None:
    assert speech.judge([], THINKERS) == []


def test_what_is_well() -> None:
    found = whole(speech.judge([talker(), code2wav()], THINKERS))
    assert bad(found) == []
    assert [f.what for f in found] == ["answers, for m, voices ethan, chelsie", "answers, for m", "m can be spoken"]


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([talker(down="no answer"), code2wav()], [Check.SPEECH_ENGINE, Check.SPEECH]),
        ([talker(), code2wav(down="no answer")], [Check.SPEECH_ENGINE, Check.SPEECH]),
        ([talker(identity=None), code2wav()], [Check.SPEECH_IDENTITY, Check.SPEECH]),
        ([talker(identity={"speakers": "ethan"}), code2wav()], [Check.SPEECH_IDENTITY, Check.SPEECH]),
        ([talker(), code2wav(identity=VOICES)], [Check.SPEECH_IDENTITY, Check.SPEECH]),
        ([talker(), code2wav(identity=None)], []),
        ([talker(models={"other": None}), code2wav()], [Check.SPEECH]),
        ([talker(), code2wav(models={"other": None})], [Check.SPEECH]),
        ([talker(), talker(down="no answer"), code2wav()], [Check.SPEECH_ENGINE]),
        ([talker()], [Check.SPEECH]),
    ],
)
def test_engines_that_speak(stages: list[EngineLook], expected: list[Check]) -> None:
    assert bad(whole(speech.judge(stages, THINKERS))) == [(check, FAULT) for check in expected]


def test_a_missing_stage_is_told_by_what_all_serve() -> None:
    *_, path = speech.judge([talker(models={"other": None})], THINKERS)
    assert path.what == "nothing can be spoken: Thinkers serve m, talkers speak for other, code2wavs speak for nothing"


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (None, "it tells no Talker what it computes"),
        ({"channel": None}, "it tells no Talker what it computes"),
        ({"channel": "ipc:///rows"}, 'it tells channel "ipc:///rows"; expected duet+ipc'),
        ({"channel": 7}, "it tells channel 7; expected duet+ipc"),
    ],
)
def test_thinkers_that_no_talker_hears(identity: Any, said: str) -> None:
    deaf = seen("d", Role.DECODE, identity=identity)
    strangers = [seen("x", Role.DECODE, models={"text": None}), seen("y", Role.DECODE, down="no answer")]
    found = whole(speech.judge([talker(), code2wav()], [THINKERS[0], deaf, *strangers]))
    assert bad(found) == [(Check.SPEECH_CHANNEL, FAULT)]
    assert found[-1].about == "decode d:1"
    assert found[-1].what.startswith(said)
