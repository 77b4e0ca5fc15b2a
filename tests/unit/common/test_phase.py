"""The contract's table, and its edges."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import phase
from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN, Cut, PhaseInfo

TABLE = [
    # prompt, computed, span, tokens; prefill, MTP
    (5, 0, 4, 5, True, False),
    (5, 4, 1, 5, True, False),
    (5, 5, 1, 6, False, True),
    (5, 6, 1, 7, False, True),
    (1, 0, 1, 1, True, False),
    (5, 5, 2, 6, False, False),
    (5, 5, 1, 8, False, False),
]


@pytest.mark.parametrize(("prompt_len", "computed", "span", "tokens", "prefill", "mtp"), TABLE)
def test_the_table(prompt_len: int, computed: int, span: int, tokens: int, prefill: bool, mtp: bool) -> None:
    row = PhaseInfo.of(prompt_len, computed, span, tokens)
    assert row.is_prefill is prefill
    assert row.mtp_eligible is mtp
    assert row.batched_decode_eligible is mtp
    assert row.keys() == {PROMPT_LEN: prompt_len, NUM_COMPUTED: computed, IS_PREFILL: prefill}


def test_the_table_in_the_docs_is_this_one() -> None:
    lines = [line for line in (phase.__doc__ or "").splitlines() if re.match(r"\| \d", line)]
    told = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(*map(int, row[:4]), row[4].startswith("prefill"), row[5].startswith("yes")) for row in told] == TABLE


def test_the_keys_are_those_that_models_are_written_for() -> None:
    assert phase.KEYS == ("_omni_prompt_len", "_omni_num_computed_tokens", "_omni_is_prefill")


def test_the_first_row_of_decode_after_a_full_remote_load_is_the_prompts_tail() -> None:
    row = PhaseInfo.of(110, 109, 1, 110)
    assert row.is_prefill
    assert not row.mtp_eligible


@pytest.mark.parametrize("numbers", [(-1, 0, 1, 1), (1, -1, 1, 1), (1, 0, 0, 1), (5, 0, 1, 4)])
def test_numbers_that_no_row_can_have(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=rf"prompt_len {numbers[0]}, num_computed {numbers[1]}, span {numbers[2]}"):
        PhaseInfo.of(*numbers)


def test_a_resumed_row_that_runs_past_its_prompt() -> None:
    row = PhaseInfo.of(41, 0, 51, 51)
    assert row.is_prefill
    assert not row.mtp_eligible
    assert row.cut(fed_until=50) == Cut(PhaseInfo(41, 0, 41, 51), range(41, 50), PhaseInfo(41, 50, 1, 51))
    new = row.cut(fed_until=50).new
    assert new is not None
    assert new.mtp_eligible


@pytest.mark.parametrize(
    ("numbers", "replay"),
    [
        ((5, 0, 4, 5), False),  # a prompt's first chunk: nothing was sampled
        ((5, 4, 1, 5), False),
        ((41, 0, 10, 51), True),  # the same of a prompt that was computed before
        ((41, 0, 41, 51), True),
        ((41, 0, 51, 51), False),  # its last position is new
        ((5, 0, 5, 6), True),
        ((5, 5, 1, 6), False),
        ((5, 5, 1, 7), True),
        ((5, 5, 2, 6), False),  # behind the newest that is known: drafts
    ],
)
def test_a_replay_is_what_a_later_token_was_sampled_from(numbers: tuple[int, int, int, int], replay: bool) -> None:
    assert PhaseInfo.of(*numbers).is_replay is replay


def test_a_chunk_of_it_is_replayed_whole() -> None:
    row = PhaseInfo.of(41, 41, 5, 51)
    assert row.is_replay
    assert row.cut(fed_until=50) == Cut(None, range(41, 46), None)


rows = st.builds(
    lambda prompt, computed, span, more: PhaseInfo.of(prompt, computed, span, max(prompt, computed + span) + more),
    st.integers(0, 40),
    st.integers(0, 60),
    st.integers(1, 60),
    st.integers(0, 5),
)


@given(rows, st.integers(0, 130))
def test_parts_are_the_row_and_each_is_one_phase(row: PhaseInfo, fed_until: int) -> None:
    cut = row.cut(fed_until)
    positions: list[int] = []
    for part in (cut.prompt, cut.new):
        if part is not None:
            assert part.end <= row.prompt_len or not part.is_prefill
            assert part.num_tokens == row.num_tokens
    if cut.prompt is not None:
        assert cut.prompt.is_prefill
        positions += range(cut.prompt.num_computed, cut.prompt.end)
    positions += cut.replayed
    if cut.new is not None:
        assert not cut.new.is_prefill
        positions += range(cut.new.num_computed, cut.new.end)
        assert cut.new.num_computed >= min(fed_until, row.end)
    assert positions == list(range(row.num_computed, row.end))
    assert all(row.prompt_len <= p < fed_until for p in cut.replayed)
