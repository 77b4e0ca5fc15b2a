"""vLLM's command line, read as settings: what `flag` writes is read as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.topology.flags import settings_of
from common.topology.launch import flag
from common.topology.names import ENGINE_ARGS

NAMES = sorted(name for name in ENGINE_ARGS if not name.startswith("no_"))
WORDS = st.from_regex(r"[a-z][a-z0-9/_.-]{0,8}", fullmatch=True).filter(lambda w: w not in ("true", "false", "null"))
PLAIN = st.booleans() | st.integers() | WORDS
VALUES = (
    PLAIN | st.dictionaries(WORDS, PLAIN | st.dictionaries(WORDS, PLAIN)) | st.lists(st.integers() | WORDS, min_size=2)
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6))
def test_what_is_written_is_read(settings: dict[str, Any]) -> None:
    args = [arg for name, value in settings.items() for arg in flag(name, value)]
    assert settings_of(args) == settings


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        (["--a-b=1", "--a_b", "2"], {"a_b": 2}),
        (["--a-b", "--no-a-b"], {"a_b": False}),
        (["--a.b", "1", "--a.c.d", "x", "--a", '{"e": 1}'], {"a": {"b": 1, "c": {"d": "x"}}}),
        (["-tp", "2", "-dp=4"], {"tensor_parallel_size": 2, "data_parallel_size": 4}),
        (["--a", "-1", "-2"], {"a": [-1, -2]}),
        (["stray", "--", "--a", "b c"], {"a": "b c"}),
        ([], {}),
    ],
)
def test_ways_to_write_it(args: list[str], settings: dict[str, Any]) -> None:
    assert settings_of(args) == settings
