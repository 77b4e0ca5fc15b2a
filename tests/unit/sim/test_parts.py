"""The simulator's pure parts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.sim import words
from engines.sim.answer import Answer, Prefilled
from engines.sim.ask import Ask, SimRefused, read
from engines.sim.calls import leg_of
from engines.sim.faults import Fault, Faults
from engines.sim.handoff import BLOCK, Fate, fate, returned
from engines.sim.kv import FREED, KvShelf
from tests.fakes.clock import FakeClock

tokens = st.lists(st.integers(0, words.VOCABULARY - 1), max_size=30)


@given(st.text())
def test_text_survives_its_tokens(text: str) -> None:
    assert words.decode(words.encode(text)) == text


@given(tokens, tokens)
def test_kv_grows_token_by_token(first: list[int], rest: list[int]) -> None:
    """What makes a split possible: the state after the prompt is all that decode needs of it."""
    assert words.absorb(words.absorb(0, first), rest) == words.absorb(0, first + rest)


@given(st.integers(0, 2**32 - 1), st.integers(-(2**63), 2**63 - 1))
def test_an_answer_is_made_of_words(state: int, seed: int) -> None:
    token = words.next_token(state, seed)
    assert words.WORD_BASE <= token < words.VOCABULARY
    assert words.next_token(state, seed) == token
    assert words.next_token(state, seed, end_every=1) == words.END


@pytest.mark.parametrize("name", words.SHAPING)
def test_whatever_shapes_a_prompt_is_in_it(name: str) -> None:
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert words.render({**chat, name: "another"}) != words.render(chat)
    assert words.render({**chat, "max_tokens": 1}) == words.render(chat)


def test_kv_can_be_fetched_once() -> None:
    shelf = KvShelf(lease=30)
    shelf.put("a", 5, 123)
    assert [shelf.fetch("a"), shelf.fetch("a"), shelf.fetch("b")] == [123, FREED, FREED]
    assert (shelf.fetched, shelf.expired, shelf.released) == (1, 0, 0)


def test_kv_is_freed_when_its_lease_is_over() -> None:
    clock = FakeClock()
    shelf = KvShelf(lease=30, clock=clock.monotonic)
    shelf.put("a", 5, 1)
    clock.advance(20)
    shelf.put("b", 5, 2)
    clock.advance(10)
    assert [shelf.fetch("a"), shelf.fetch("b")] == [FREED, 2]
    assert (shelf.fetched, shelf.expired) == (1, 1)


def test_kv_that_nobody_wants_can_be_released() -> None:
    shelf = KvShelf(lease=30)
    shelf.put("a", 5, 1)
    shelf.release("a")
    shelf.release("a")
    assert (shelf.held, shelf.released, shelf.expired) == ({}, 1, 0)


GOOD = returned(engine="e", request="r", host="h", port=1, tokens=40, blocks=[1, 2], cached=0)


def _without(*names: str) -> dict[str, Any]:
    return {k: v for k, v in GOOD.items() if k not in names}


@pytest.mark.parametrize(
    ("params", "prompt", "expected"),
    [
        ({}, 40, Fate.LOCAL),
        ({"do_remote_decode": True}, 40, Fate.LOCAL),
        (GOOD, 40, Fate.LOADS),
        (GOOD, 2 * BLOCK, Fate.LOADS),
        (GOOD, 2 * BLOCK + 1, Fate.DIES),
        ({"do_remote_prefill": True}, 40, Fate.DIES),
        (_without("remote_block_ids"), 40, Fate.DIES),
        (_without("remote_engine_id"), 40, Fate.HANGS),
        (_without("remote_host"), 40, Fate.HANGS),
        (_without("tp_size"), 40, Fate.LOADS),
    ],
)
def test_a_handoffs_fate(params: dict[str, Any], prompt: int, expected: Fate) -> None:
    assert fate(params, prompt) is expected


def test_faults_hit_whom_they_are_for_and_are_used_up() -> None:
    faults = Faults([Fault("hang", on="decode"), Fault("status", times=2), Fault("drop", on="health")])
    taken = [faults.take(target) for target in ("prefill", "decode", "decode", "health", "unsplit")]
    assert [fault.mode if fault else None for fault in taken] == ["status", "hang", "status", "drop", None]
    assert not faults


@pytest.mark.parametrize("values", [{}, {"mode": "no"}, {"mode": "hang", "on": "no"}, {"mode": "hang", "mood": 1}])
def test_a_fault_that_is_none_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected mode, one of status, drop"):
        Fault.of(values)


@pytest.mark.parametrize(
    ("body", "leg"),
    [
        ({"kv_transfer_params": {"do_remote_decode": True}}, "prefill"),
        ({"kv_transfer_params": {"do_remote_prefill": True}}, "decode"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "unsplit"),
        ({"kv_transfer_params": None}, "unsplit"),
        ({}, "unsplit"),
        (None, "unsplit"),
        ([], "unsplit"),
    ],
)
def test_the_leg_of_a_body(body: Any, leg: str) -> None:
    assert leg_of(body) == leg


def asking(**changes: Any) -> Ask:
    return replace(read(False, b'{"prompt": "x", "max_tokens": 30}', model="m", max_model_len=100), **changes)


def answered(ask: Ask, end_every: int = 0) -> tuple[Answer, str]:
    """An answer run to its end, and the text of its steps."""
    prompt = ask.prompts[0]
    answer = Answer(0, Prefilled(prompt, words.absorb(0, prompt), 0), ask, ask.limits[0], end_every)
    text = ""
    while answer.finish is None:
        text += answer.step().text
    return answer, text


@given(st.lists(st.text("w0123456789 ", min_size=1, max_size=6), max_size=3), st.integers(0, 9))
def test_what_is_streamed_is_the_text_up_to_a_stop(stops: list[str], seed: int) -> None:
    whole, text = answered(asking(seed=seed))
    assert text == whole.text
    stopped, streamed = answered(asking(seed=seed, stop=tuple(stops)))
    assert streamed == stopped.text
    assert (stopped.finish == "stop") == any(stop in whole.text for stop in stops)
    if stopped.finish == "stop":
        assert stopped.stop_reason in stops
        assert whole.text.startswith(f"{streamed}{stopped.stop_reason}")
        assert not [stop for stop in stops if stop in streamed]
    else:
        assert streamed == whole.text


def test_nothing_ends_an_answer_before_its_least_length() -> None:
    ends: list[dict[str, Any]] = [{"stop": (" w",)}, {"stop_token_ids": frozenset(range(words.VOCABULARY))}, {}]
    for end in ends:
        answer, _ = answered(asking(min_tokens=5, **end), end_every=1)
        assert (answer.finish, len(answer.tokens)) == ("stop", 6)


def test_the_end_token_can_be_ignored() -> None:
    answer, _ = answered(asking(ignore_eos=True), end_every=1)
    assert (answer.finish, len(answer.tokens)) == ("length", 30)


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs", "use_beam_search", "prompt_embeds", "logit_bias"])
def test_what_is_not_imitated_is_refused_rather_than_left_out(field: str) -> None:
    with pytest.raises(SimRefused, match=f"does not imitate {field}") as caught:
        read(False, b'{"prompt": "x", "%s": 1}' % field.encode(), model="m", max_model_len=100)
    assert caught.value.status == 501


def test_media_are_read_from_the_messages_whatever_ids_came() -> None:
    def prompt(part: dict[str, Any]) -> tuple[int, ...]:
        body = {"messages": [{"role": "user", "content": [part]}], "kv_transfer_params": {"prompt_token_ids": [7]}}
        return read(True, json.dumps(body).encode(), model="m", max_model_len=1000).prompts[0]

    assert prompt({"type": "text", "text": "x"}) == (7,)
    assert len(prompt({"type": "image_url", "image_url": {"url": "data:,"}})) > 1
