"""What several engines tell of one request, put together; and what may be read of it when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.conditioning import ConditioningInvalid
from engines.talker.conditioning import Conditioning
from engines.talker.errors import TextMissing
from engines.talker.feed import Feed, Silence
from engines.talker.script import Marks
from tests.unit.talker.telling import ASSISTANT, HEADER, PICTURE, SOUND, START, USER, frame, turn

MARKS = Marks(START, USER, ASSISTANT, frozenset({SOUND}), frozenset({PICTURE}))
PROMPT = turn(USER, 20, SOUND, 21) + HEADER
COUNT, AT = len(PROMPT), 4
SAID = [30, 31, 32]


def decode_side(conditioning: Conditioning, stream: int, said: list[int]) -> None:
    conditioning.add(stream, frame(0, COUNT, 0, PROMPT))
    for at, token in enumerate(said):
        conditioning.add(stream, frame(at + 1, COUNT, COUNT + at, [token]))


def test_sound_comes_from_prefill_and_text_from_decode() -> None:
    feed = Feed(Conditioning(2), MARKS)
    decode_side(feed.conditioning, 1, SAID[:1])
    assert feed.script is not None
    assert not feed.can_start()
    assert feed.lost() is None
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT[:3]))
    feed.conditioning.add(0, frame(1, COUNT, 3, PROMPT[3:], [AT]))
    assert feed.can_start()
    rows, row = feed.conditioning.media[AT]
    assert (rows.shape, row) == ((1, 1), 0)


def test_sound_that_nobody_computed_is_lost_with_the_reason() -> None:
    feed = Feed(Conditioning(2), MARKS)
    decode_side(feed.conditioning, 1, SAID)
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT))
    assert not feed.can_start()
    assert "cache_salt" in (feed.lost() or "")


def test_prefill_that_is_lost_is_missed_only_for_the_sound_that_it_alone_had() -> None:
    """Decode tells all of the text by itself."""
    feed = Feed(Conditioning(2), MARKS)
    decode_side(feed.conditioning, 1, SAID)
    feed.conditioning.lose(0, "prefill does not answer")
    assert not feed.can_start()
    assert feed.lost() == "1 hidden states of sound are missing, the first at position 4: prefill does not answer"
    told = Feed(Conditioning(2), MARKS)
    told.conditioning.add(0, frame(0, COUNT, 0, PROMPT, [AT]))
    told.conditioning.lose(0, "prefill does not answer")
    decode_side(told.conditioning, 1, SAID)
    assert told.can_start()
    told.conditioning.end(1)
    assert told.lost() is None
    assert [told.text(step) for step in range(4)] == [31, 32, Silence.EOS, Silence.PAD]


def test_text_ends_with_decodes_stream_though_prefills_is_still_open() -> None:
    """A prefill that was started anew knows nothing of it, and its stream may never end."""
    feed = Feed(Conditioning(2), MARKS)
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT, [AT]))
    decode_side(feed.conditioning, 1, SAID)
    feed.conditioning.end(1)
    assert feed.text(2) is Silence.EOS


def test_decode_that_is_lost_is_lost() -> None:
    feed = Feed(Conditioning(2), MARKS)
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT, [AT]))
    decode_side(feed.conditioning, 1, SAID)
    assert feed.can_start()
    feed.conditioning.lose(1, "decode does not answer")
    assert feed.lost() == "decode does not answer"


def test_text_is_read_one_a_step_then_eos_once_then_pad() -> None:
    feed = Feed(Conditioning(1), MARKS)
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT, [AT]))
    assert not feed.can_start()
    for at, token in enumerate(SAID):
        feed.conditioning.add(0, frame(at + 1, COUNT, COUNT + at, [token]))
    assert feed.can_start()
    assert [feed.can_step(step) for step in range(4)] == [True, True, False, False]
    with pytest.raises(TextMissing, match="text token 3, and 3 have been told"):
        feed.text(2)
    feed.conditioning.end(0)
    assert [feed.text(step) for step in range(5)] == [31, 32, Silence.EOS, Silence.PAD, Silence.PAD]


def test_a_worker_that_hears_later_than_the_scheduler_waits_for_the_text() -> None:
    feed = Feed(Conditioning(1), MARKS)
    decode_side(feed.conditioning, 0, SAID[:1])
    waited: list[float] = []

    def wait(done: Callable[[], bool], seconds: float) -> bool:
        waited.append(seconds)
        if not done():
            feed.conditioning.add(0, frame(2, COUNT, COUNT + 1, SAID[1:2]))
        return done()

    assert feed.text_within(0, wait, 7.0) == SAID[1]
    assert waited == [7.0]
    with pytest.raises(TextMissing, match="text token 2, and 2 have been told"):
        feed.text_within(1, lambda done, seconds: done(), 7.0)


def test_an_answer_without_text_ends_unspoken() -> None:
    feed = Feed(Conditioning(1), MARKS)
    feed.conditioning.add(0, frame(0, COUNT, 0, PROMPT, [AT]))
    feed.conditioning.end(0)
    assert feed.conditioning.ended
    assert not feed.can_start()
    assert feed.lost() is None


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (frame(0, COUNT + 1, 0, PROMPT), "a prompt of"),
        (frame(0, COUNT, 1, PROMPT[1:]), "begins at position 1: expected 0"),
        (frame(0, COUNT, 0, [*PROMPT[:-1], 99]), "two engines tell other ids"),
    ],
)
def test_frames_that_do_not_go_together_are_refused(second: object, why: str) -> None:
    conditioning = Conditioning(2)
    conditioning.add(0, frame(0, COUNT, 0, PROMPT))
    with pytest.raises(ConditioningInvalid, match=why):
        conditioning.add(1, second)  # type: ignore[arg-type]


def test_a_stream_that_ends_within_the_prompt_is_refused() -> None:
    conditioning = Conditioning(1)
    conditioning.add(0, frame(0, COUNT, 0, PROMPT[:4]))
    with pytest.raises(ConditioningInvalid, match="4 positions of a prompt of"):
        conditioning.end(0)


@given(
    cuts=st.lists(st.integers(1, COUNT + len(SAID) - 1), max_size=8),
    second=st.lists(st.integers(1, COUNT + len(SAID) - 1), max_size=8),
    turns=st.lists(st.booleans(), max_size=20),
)
def test_any_cut_and_any_order_is_the_same(cuts: list[int], second: list[int], turns: list[bool]) -> None:
    whole = PROMPT + SAID
    streams = []
    for bounds in (sorted({0, *cuts, len(whole)}), sorted({0, *second, len(whole)})):
        pieces = pairwise(bounds)
        streams.append([frame(at, COUNT, b, whole[b:e]) for at, (b, e) in enumerate(pieces)])
    conditioning = Conditioning(2)
    for pick in [*turns, *([True] * len(whole)), *([False] * len(whole))]:
        if streams[pick]:
            conditioning.add(int(pick), streams[pick].pop(0))
    conditioning.end(0)
    conditioning.end(1)
    assert conditioning.ids == whole
    assert conditioning.prompt == PROMPT
