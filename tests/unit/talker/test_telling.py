"""What a Thinker tells of a row: everything once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engines.thinker.conditioning.telling import News, Telling

PROMPT = [1, 9, 9, 2, 3]
SOUND = frozenset({9})


def test_a_chunked_prompt_and_then_decode() -> None:
    telling = Telling.of("r", PROMPT, SOUND)
    told = []
    for computed, span in ((0, 2), (2, 2), (4, 1), (5, 1)):
        news = telling.look(computed, span)
        assert news is not None
        told.append(news)
        telling.told = news.end
    assert told == [News(0, 0, 2, (1,)), News(2, 2, 4, (2,)), News(4, 4, 5, ()), News(5, 5, 6, ())]


def test_the_tail_behind_a_remote_load_tells_all_ids_and_no_sound() -> None:
    assert Telling.of("r", PROMPT, SOUND).look(4, 1) == News(0, 4, 5, ())


def test_a_cache_hit_tells_the_sound_behind_it() -> None:
    assert Telling.of("r", PROMPT, SOUND).look(2, 3) == News(0, 2, 5, (2,))


def test_what_is_computed_again_after_a_preemption_is_not_told_again() -> None:
    telling = Telling.of("r", PROMPT, SOUND)
    telling.told = 7
    assert telling.look(0, 6) is None
    assert telling.look(0, 8) == News(7, 7, 8, ())


@given(spans=st.lists(st.integers(1, 4), min_size=1, max_size=10), again=st.sets(st.integers(0, 9)))
def test_every_position_is_told_once(spans: list[int], again: set[int]) -> None:
    telling, computed, ids, sound = Telling.of("r", PROMPT, SOUND), 0, [], []
    for at, span in enumerate(spans):
        begin = 0 if at in again else computed
        if news := telling.look(begin, computed - begin + span):
            ids += range(news.begin, news.end)
            sound += news.media_at
            telling.told = news.end
        computed += span
    assert ids == list(range(computed))
    assert sound == [at for at in (1, 2) if at < computed]
