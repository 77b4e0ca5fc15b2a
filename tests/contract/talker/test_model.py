"""The Talker on vLLM speaks what transformers' own `generate` speaks: every code of every frame.

Two engines: one with room, one in which prompts come in chunks with a tail of one token and requests are preempted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.talker.conftest import Folders

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TEN = [{"case": at} for at in range(10)]
FREELY = {"case": 3, "temperature": 0.9, "seed": 42, "residual": {}}
SIXTEEN = [*TEN, FREELY, {**FREELY, "seed": 7}, {"case": 1, "stop": 9}, {"case": 5, "silent": True}]
SIXTEEN += [{"case": 0, "pace": None}, {"case": 8, "pace": 3}]
LAST, SILENT, STOPPED, FREE, OTHER_SEED = 14, 13, 12, 10, 11
BLOCKS = 20
"""KV blocks of 32 tokens: seven of the longest requests do not fit."""


@pytest.fixture(scope="module")
def roomy(speak: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """All 16 at once, whole prompts. One Thinker is slow; another says nothing until all others are done."""
    return speak(SIXTEEN, engine={"max_num_seqs": 16, "max_num_batched_tokens": 4096})


@pytest.fixture(scope="module")
def cramped(
    speak: Callable[..., dict[str, Any]], folders: Folders, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    log = tmp_path_factory.mktemp("phases") / "rows.jsonl"
    engine = {
        "max_num_seqs": 16,
        "max_num_batched_tokens": 64,
        "long_prefill_token_threshold": _threshold(folders),
        "num_gpu_blocks_override": BLOCKS,
    }
    found = speak([*TEN, FREELY, {"case": 8, "pace": 3}], log=log, engine=engine, chunks=3)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return {**found, "rows": [row for row in rows if row["event"] == "row"]}


def _threshold(folders: Folders) -> int:
    """Tokens of a chunk: so many that most prompts end with a chunk of one."""
    from engines.talker.config import TalkerConfig, marks_of
    from engines.talker.script import Script

    marks = marks_of(TalkerConfig.from_pretrained(folders.talker))
    lengths = [Script.of(case.prompt, marks).length for case in folders.oracle]
    return max(range(8, 33), key=lambda size: sum(length % size == 1 for length in lengths))


def test_the_oracle_has_something_to_tell(folders: Folders) -> None:
    assert sum(bool(case.media_at) for case in folders.oracle) == 4
    frames = [tuple(frame) for case in folders.oracle for frame in case.codes]
    assert len(set(frames)) > 100


@pytest.mark.parametrize("case", range(10))
def test_codes_are_transformers_own(roomy: dict[str, Any], folders: Folders, case: int) -> None:
    _same(roomy["requests"][case], folders, case)


@pytest.mark.parametrize("case", range(10))
def test_chunked_prompts_and_preemptions_change_nothing(cramped: dict[str, Any], folders: Folders, case: int) -> None:
    _same(cramped["requests"][case], folders, case)


def test_prompts_ended_with_one_token_and_requests_were_preempted(cramped: dict[str, Any]) -> None:
    tails = {
        row["request"] for row in cramped["rows"] if row["span"] == 1 and row["computed"] == row["prompt_len"] - 1 > 0
    }
    assert tails
    prompts = [row for row in cramped["rows"] if row["computed"] + row["span"] <= row["prompt_len"]]
    assert all(row["is_prefill"] and not row["mtp"] for row in prompts)
    assert cramped["preemptions"] > 0
    assert any(row["replayed"] for row in cramped["rows"])


def test_the_stop_token_has_no_frame(roomy: dict[str, Any], folders: Folders) -> None:
    case, got = folders.oracle[1], roomy["requests"][STOPPED]
    end = case.first.index(case.first[9])
    assert 0 < end < len(case.codes)
    assert got["first"] == case.first[: end + 1]
    assert got["codes"] == case.codes[:end]


def test_a_thinker_that_says_nothing_holds_nobody_up(roomy: dict[str, Any], folders: Folders) -> None:
    ended = [request["ended"] for request in roomy["requests"]]
    assert ended[LAST] > max(ended[:LAST] + ended[LAST + 1 :])
    _same(roomy["requests"][LAST], folders, 0)


def test_slow_text_is_the_same_speech(roomy: dict[str, Any], cramped: dict[str, Any], folders: Folders) -> None:
    _same(roomy["requests"][15], folders, 8)
    _same(cramped["requests"][11], folders, 8)


def test_sound_is_heard(roomy: dict[str, Any], folders: Folders) -> None:
    """The same request with its hidden states zero is other speech: the equality above has a reason."""
    assert roomy["requests"][SILENT]["codes"] != folders.oracle[5].codes


def test_a_seed_gives_the_same_codes_alone_and_among_others(roomy: dict[str, Any], cramped: dict[str, Any]) -> None:
    sampled = roomy["requests"][FREE]["codes"]
    assert sampled == cramped["requests"][10]["codes"]
    assert sampled != roomy["requests"][OTHER_SEED]["codes"]
    assert sampled != roomy["requests"][3]["codes"]


def _same(got: dict[str, Any], folders: Folders, case: int) -> None:
    expected = folders.oracle[case]
    assert got["first"] == expected.first
    assert got["codes"] == expected.codes
