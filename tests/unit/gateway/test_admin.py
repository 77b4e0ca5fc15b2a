"""The pure parts of the admin API: who fits, what goes over which edge, what a timeline is made of, who may call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.engine import Engine, Role
from common.errors import DuetError, Forbidden, Unauthorized
from gateway.api.admin.requests import bare_id
from gateway.api.admin.timeline import spans
from gateway.api.auth import Keys
from gateway.api.traffic import SAMPLE, WINDOW, count
from gateway.fleet.fit import contradiction, misfit
from gateway.lifecycle import Event, Record, Speech, State
from gateway.store.port import EventRow
from tests.contract.store.samples import DECODE, PREFILL, START, new_record

THINKER = {"role": "prefill", "model": "m", "connector": "NixlConnector", "block_size": 16, "vllm_version": "0.32.0"}
THINKER |= {"stage": "thinker", "tensor_parallel_size": 1}
P1, P2 = (Engine.at(f"http://p:{port}", Role.PREFILL) for port in (1, 2))
D1 = Engine.at("http://d:1", Role.DECODE)


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        ({}, None),
        ({"block_size": 32}, "block_size differs: prefill p:1 has 16, decode d:1 has 32; set the same on both"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size differs: prefill p:1 has 1, decode d:1 has 2"),
        ({"connector": "MooncakeConnector"}, "connector"),
        ({"vllm_version": "0.31.0"}, "vllm_version"),
        ({"revision": "abc"}, None),
        ({"model": "another", "block_size": 32}, None),
        ({"role": "prefill"}, "role: it says that it is 'prefill'; asked for was 'decode'"),
        ({"role": "both"}, None),
        ({"stage": "talker"}, "stage: it says that it is a 'talker'; asked for was a 'thinker'"),
    ],
)
def test_who_fits(mine: dict[str, Any], said: str | None) -> None:
    """What one side does not tell is not compared, nor engines of another model."""
    wrong = misfit(D1, {**THINKER, "role": "decode", **mine}, {"p:1": (P1, THINKER)})
    assert (wrong is None) is (said is None)
    assert said is None or said in (wrong or "")


def test_a_talker_exchanges_no_kv() -> None:
    other = {"d:1": (D1, THINKER)}
    assert misfit(Engine.at("http://t:1", Role.TALKER), {"model": "m", "block_size": 64}, other) is None


def test_two_that_stand_in_for_each_other_are_alike() -> None:
    other = {"p:1": (P1, THINKER)}
    assert misfit(P2, {**THINKER}, other) is None
    wrong = misfit(P2, {**THINKER, "block_size": 32}, other)
    assert wrong is not None
    assert wrong.startswith("block_size differs: prefill p:1 has 16, prefill p:2 has 32")


def test_a_stranger_must_be_of_a_model_that_its_partners_serve() -> None:
    other = {"p:1": (P1, THINKER), "p:2": (P2, {**THINKER, "model": "second"})}
    alien = {**THINKER, "role": "decode", "model": "alien"}
    assert misfit(D1, alien, other) is None, "whoever names it may serve a further model"
    wrong = misfit(D1, alien, other, stranger=True)
    assert wrong is not None
    assert "model differs: decode d:1 has 'alien', and of its partners p:1 has 'm'" in wrong
    assert misfit(D1, {**alien, "model": "second"}, other, stranger=True) is None
    assert misfit(D1, alien, {}, stranger=True) is None, "it is the first"
    assert misfit(D1, alien, {"p:1": (P1, {})}, stranger=True) is None, "a stock engine tells no model"


def test_a_declaration_is_held_against_what_is_known() -> None:
    assert contradiction({"block_size": 16}, {"block_size": 16}, by="x") is None
    assert contradiction({"block_size": 16}, {}, by="x") is None
    assert contradiction({"block_size": 16}, {"block_size": 8}, by="by its word") == (
        "block_size: declared as 16, but by its word it is 8"
    )


def ended(state: State, **over: Any) -> Record:
    timings = {"accepted": START, "prefilling": START, "prefilled": START + 0.2, "decoding": START + 0.21}
    return new_record(state=state, timings=timings, **over)


def test_edges_are_counted_from_requests() -> None:
    records = [
        ended(State.FINISHED),
        ended(State.FAILED, attempt=2),
        ended(State.DECODING),
        ended(State.FINISHED, prefill=None, unsplit="n"),
        ended(State.FINISHED, talker="t:1", code2wav="c:1"),
    ]
    counted = count(records, START + 10)
    assert counted.window == WINDOW
    edges = {(e.source, e.target): e for e in counted.edges}
    assert {k: e.kind for k, e in edges.items()} == {
        ("gateway", PREFILL): "prefill",
        (PREFILL, DECODE): "kv",
        ("gateway", DECODE): "decode",
        (DECODE, "t:1"): "conditioning",
        ("t:1", "c:1"): "codes",
    }
    kv = edges[PREFILL, DECODE]
    assert (kv.requests, kv.running, kv.failed, kv.retried) == (4, 1, 1, 1)
    assert edges["gateway", PREFILL].seconds == pytest.approx([0.2] * 4)


def test_old_requests_count_only_while_they_run() -> None:
    old, running = ended(State.FINISHED), ended(State.DECODING)
    counted = count([running, old], START + WINDOW + 5)
    assert {e.requests for e in counted.edges} == {1}


def test_where_there_are_more_than_can_be_looked_at_the_window_is_shorter() -> None:
    records = [ended(State.FINISHED, created_at=START - n / 100) for n in range(SAMPLE)]
    counted = count(records, START + 1)
    assert counted.window == pytest.approx(1 + (SAMPLE - 1) / 100)
    assert counted.edges[0].requests == SAMPLE


def rows(*events: tuple[str, float]) -> list[EventRow]:
    return [EventRow(f"1-{n}", START + at, event, State.ACCEPTED) for n, (event, at) in enumerate(events)]


def drawn(record: Record, *events: tuple[str, float]) -> list[tuple[str, float, float | None]]:
    return [
        (s.name, round(s.start - START, 3), None if s.end is None else round(s.end - START, 3))
        for s in spans(record, rows(*events))
    ]


def test_a_spoken_request_has_five_spans() -> None:
    record = new_record(
        state=State.FINISHED,
        speech=Speech.DONE,
        timings={"first_byte": START + 0.5},
        talker="t:1",
        code2wav="c:1",
    )
    life = [
        ("admitted", 0.0),
        (Event.PREFILL_SENT, 0.1),
        (Event.PREFILL_DONE, 0.3),
        (Event.DECODE_SENT, 0.4),
        (Event.SPEECH_STARTED, 0.9),
        (Event.SPEECH_DONE, 2.0),
        (Event.COMPLETED, 2.1),
    ]
    assert drawn(record, *life) == [
        ("queue", 0.0, 0.1),
        ("prefill", 0.1, 0.3),
        ("handoff", 0.3, 0.5),
        ("talker", 0.4, 2.0),
        ("decode", 0.5, 2.1),
        ("code2wav", 0.9, 2.0),
    ]
    engines = {s.name: s.engine for s in spans(record, rows(*life))}
    assert (engines["talker"], engines["code2wav"], engines["queue"]) == ("t:1", "c:1", None)


def test_each_attempt_has_the_engines_that_were_chosen_for_it() -> None:
    record = new_record(state=State.FINISHED, attempt=2, prefill="p:2", decode="d:2")
    told = [
        ("admitted", {"prefill": "p:1", "decode": "d:1"}),
        (Event.PREFILL_SENT, {}),
        (Event.RETRIED, {"prefill": "p:2", "decode": "d:2"}),
        (Event.PREFILL_SENT, {}),
    ]
    life = [EventRow(f"1-{n}", START + n, event, State.PREFILLING, its) for n, (event, its) in enumerate(told)]
    assert [(s.name, s.engine) for s in spans(record, life)] == [
        ("queue", None),
        ("prefill", "p:1"),
        ("queue", None),
        ("prefill", "p:2"),
    ]
    older = [replace(row, engines={}) for row in life]
    assert [s.engine for s in spans(record, older)] == [None, None, None, "p:2"], "an older gateway wrote them"


def test_what_runs_has_no_end() -> None:
    record = new_record(state=State.PREFILLING)
    assert drawn(record, ("admitted", 0), (Event.PREFILL_SENT, 1)) == [("queue", 0, 1), ("prefill", 1, None)]


def test_legs_at_once_overlap_and_hand_nothing_over_in_between() -> None:
    record = new_record(state=State.FINISHED, stream=False, timings={"first_byte": START + 3})
    life = [("admitted", 0), (Event.PREFILL_SENT, 0), (Event.DECODE_SENT, 0), (Event.PREFILL_DONE, 1)]
    assert drawn(record, *life, (Event.COMPLETED, 3)) == [("queue", 0, 0), ("prefill", 0, 1), ("decode", 0, 3)]


@pytest.mark.parametrize("end", [Event.FAILED, Event.CANCELLED, Event.EXPIRED])
def test_whatever_ends_a_request_ends_its_spans(end: Event) -> None:
    record = new_record(state=State.FAILED)
    assert drawn(record, ("admitted", 0), (Event.PREFILL_SENT, 1), (end, 2))[-1] == ("prefill", 1, 2)


CASES: list[tuple[list[str], str | None, str | None, type[DuetError] | None, type[DuetError] | None]] = [
    ([], None, None, None, None),
    ([], None, "x", None, None),
    (["c"], None, None, Unauthorized, Unauthorized),
    (["c"], None, "c", None, Forbidden),
    (["c"], None, "x", Unauthorized, Unauthorized),
    ([], "a", None, Unauthorized, Unauthorized),
    ([], "a", "a", None, None),
    (["c"], "a", "a", None, None),
    (["c"], "a", "c", Forbidden, Forbidden),
    (["c"], "a", "x", Unauthorized, Unauthorized),
    (["c"], "c", "c", None, None),
]


@pytest.mark.parametrize(("clients", "admin", "given", "reading", "changing"), CASES)
def test_who_may_look_and_who_may_change(
    clients: list[str],
    admin: str | None,
    given: str | None,
    reading: type[DuetError] | None,
    changing: type[DuetError] | None,
) -> None:
    keys = Keys(clients, admin)
    header = None if given is None else f"Bearer {given}"
    for changes, expected in ((False, reading), (True, changing)):
        raised = None
        try:
            keys.check_admin(header, changes=changes)
        except DuetError as e:
            raised = type(e)
        assert raised is expected


@pytest.mark.parametrize("given", ["abc", "chatcmpl-abc", "chatcmpl-abc-1-decode", "cmpl-abc-2-decode"])
def test_a_request_is_known_by_any_of_its_ids(given: str) -> None:
    assert bare_id(given) == "abc"
