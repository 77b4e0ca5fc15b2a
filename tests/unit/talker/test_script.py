"""Which positions the Talker reads."""

from __future__ import annotations

import pytest

from engines.talker.errors import ScriptInvalid, SpeechUnsupported
from engines.talker.script import HEADER as HEADER_LEN
from engines.talker.script import MARKS as MARKS_LEN
from engines.talker.script import Marks, Script
from tests.unit.talker.telling import ASSISTANT, HEADER, PICTURE, SOUND, START, SYSTEM, USER, turn

MARKS = Marks(START, USER, ASSISTANT, frozenset({SOUND}), frozenset({PICTURE}))


def test_only_user_turns_and_the_last_header_are_read() -> None:
    prompt = turn(SYSTEM, 20) + turn(USER, 21, SOUND, SOUND) + turn(ASSISTANT, 22) + turn(USER, 23) + HEADER
    script = Script.of(prompt, MARKS)
    assert [prompt[at] for at in script.read] == turn(USER, 21, SOUND, SOUND) + turn(USER, 23)
    assert [prompt[at] for at in script.header] == HEADER
    assert script.media == (10, 11)
    assert script.text_from == len(prompt)
    assert script.length == len(script.read) + HEADER_LEN + MARKS_LEN


def test_sound_in_other_turns_is_not_heard() -> None:
    assert Script.of(turn(SYSTEM, SOUND) + turn(USER, 20) + HEADER, MARKS).media == ()


def test_text_that_the_prompt_begins_is_spoken_too() -> None:
    prompt = [*turn(USER, 20), *HEADER, 30, 31]
    assert Script.of(prompt, MARKS).text_from == len(prompt) - 2


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        turn(USER, 20),
        [START, ASSISTANT],
        [*turn(USER, 20), START, ASSISTANT],
        turn(USER, 20) + turn(ASSISTANT, 21) + turn(USER, 22),
    ],
)
def test_a_prompt_that_nobody_answers_is_refused(prompt: list[int]) -> None:
    with pytest.raises(ScriptInvalid, match="expected one at the end"):
        Script.of(prompt, MARKS)


def test_pictures_are_refused_by_position() -> None:
    with pytest.raises(SpeechUnsupported, match="at position 3"):
        Script.of(turn(USER, PICTURE) + HEADER, MARKS)
