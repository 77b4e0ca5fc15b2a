"""A record as a hash: nothing is lost on the way, and what is no record is named."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lifecycle import Record, Speech, State
from gateway.store.codec import (
    SETTABLE,
    UnreadableRecord,
    admission_fields,
    changed_fields,
    fingerprint,
    from_hash,
    readable,
)
from tests.contract.store.samples import START, new_record

text = st.text(max_size=12)
filled = st.text(min_size=1, max_size=12)
seconds = st.floats(allow_nan=False, allow_infinity=False)
json_objects = st.none() | st.dictionaries(text, st.none() | st.integers() | seconds | text | st.lists(st.integers()))
records = st.builds(
    Record,
    id=st.just("a1"),
    state=st.sampled_from(State),
    version=st.just(1),
    attempt=st.integers(1, 9),
    model=text,
    endpoint=text,
    stream=st.booleans(),
    connector=text,
    owner=text,
    decode=text,
    created_at=st.shared(seconds, key="created"),
    updated_at=st.shared(seconds, key="created"),
    prefill=st.none() | filled,
    unsplit=st.none() | filled,
    client_request_id=st.none() | filled,
    handoff=json_objects,
    handoff_expires_at=st.none() | seconds,
    timings=st.dictionaries(text, seconds, max_size=4),
    usage=json_objects,
    error=json_objects,
    speech=st.sampled_from(Speech),
    talker=st.none() | filled,
    code2wav=st.none() | filled,
    conditioning=st.none() | st.lists(text),
)


def as_admitted(record: Record) -> dict[str, str]:
    """The whole hash, with what admission itself writes."""
    return {
        "version": "1",
        "state": record.state.value,
        "updated_at": repr(record.created_at),
        "op:1": "admit:x",
        **admission_fields(record),
    }


@given(record=records)
def test_a_record_survives(record: Record) -> None:
    hashed = as_admitted(record)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in hashed.items())
    assert from_hash("a1", hashed) == record


def test_every_field_of_a_record_is_known() -> None:
    """A field that is added to Record and not to the codec would be lost without a word."""
    full = new_record(
        unsplit="n",
        client_request_id="c",
        handoff={"a": 1},
        handoff_expires_at=START,
        usage={"b": 2},
        error={"c": 3},
        timings={"first_byte": START},
        speech=Speech.WAITING,
        talker="t:1",
        code2wav="c:1",
        conditioning=["duet+ipc:///x?request=r&stage=thinker"],
    )
    assert all(getattr(full, field.name) is not None for field in fields(Record))
    hashed = {"id": full.id, **as_admitted(full)}
    assert {f.name for f in fields(Record)} - hashed.keys() == {"timings"}
    assert from_hash(full.id, hashed) == full
    assert {f.name for f in fields(Record)} >= SETTABLE


def test_a_fingerprint_is_of_the_content() -> None:
    record = new_record(handoff={"a": 1, "b": 2})
    again = replace(record, handoff={"b": 2, "a": 1}, timings=dict(record.timings))
    assert fingerprint(admission_fields(record)) == fingerprint(admission_fields(replace(record)))
    assert fingerprint(admission_fields(again)).startswith("admit:")
    assert fingerprint(admission_fields(record)) != fingerprint(admission_fields(replace(record, stream=False)))


def test_what_a_transition_may_not_set_is_named() -> None:
    with pytest.raises(ValueError, match=r"\['owner', 'state'\].*expected some of.*'usage'"):
        changed_fields({"usage": {}, "state": "x", "owner": "y"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "dreaming"}, "dreaming"),
        ({"version": "two"}, "two"),
        ({"usage": "{"}, "property name"),
        ({"usage": "[]"}, "usage is a list; expected a dict"),
        ({"conditioning": "{}"}, "conditioning is a dict; expected a list"),
        ({"handoff": "[" * 100_000}, "recursion"),
        ({"created_at": "nan"}, "a time is 'nan'"),
        ({"model": None}, "no field 'model'"),
    ],
)
def test_a_hash_that_is_no_record_is_named(change: dict[str, Any], words: str) -> None:
    hashed = {k: v for k, v in {**as_admitted(new_record()), **change}.items() if v is not None}
    with pytest.raises(UnreadableRecord, match=rf"request r1 .*{words}"):
        from_hash("r1", hashed)


def test_unreadable_records_hide_no_others(caplog: pytest.LogCaptureFixture) -> None:
    good = new_record()
    rows = {"bad": {"state": "dreaming"}, good.id: as_admitted(good), "gone": {}}
    assert readable(rows) == [good]
    assert "request bad" in caplog.text
    assert "gone" not in caplog.text


def test_fields_of_a_newer_version_are_let_be() -> None:
    record = new_record()
    assert from_hash(record.id, {**as_admitted(record), "smell": "roses"}) == record
