"""One suite that every connector passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.connectors import CONNECTORS, Connector, connector
from common.connectors.base import EngineFacts, HandoffContext, Order, PrefillReply
from common.engine import Engine, Role
from common.errors import ConfigurationError, HandoffInvalid
from tests.contract.connectors.samples import SAMPLES

PREFILL = Engine.at("http://127.0.0.1:8100", Role.PREFILL)
DECODE = Engine.at("http://127.0.0.1:8200", Role.DECODE)
CTX = HandoffContext("abc-1-kv", PREFILL, DECODE, now=1000.0)
RECEIVED = 1010.0

every = pytest.mark.parametrize("kind", CONNECTORS, ids=lambda kind: kind.name)


def reply_for(kind: type[Connector], **changes: Any) -> PrefillReply | None:
    """What prefill said, with changes; None where the connector does not wait for it."""
    sample = SAMPLES[kind]
    if kind.order is Order.CONCURRENT:
        return None
    params = None if sample.reply is None else {**sample.reply, **changes}
    return PrefillReply(params, sample.prompt_tokens, RECEIVED)


@every
def test_it_is_found_by_each_of_its_names(kind: type[Connector]) -> None:
    for name in (kind.name, kind.name.upper(), *kind.aliases):
        assert type(connector(name)) is kind


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match=f"'Nope' is not known; expected one of .*{CONNECTORS[0].name}"):
        connector("Nope")


@every
def test_what_engines_are_sent_is_json(kind: type[Connector]) -> None:
    kv = kind()
    handoff = kv.handoff(CTX, reply_for(kind))
    for params in (kv.prefill_params(CTX), kv.decode_params(CTX, handoff)):
        assert json.loads(json.dumps(params)) == params


@every
def test_the_handoff_ends_before_the_lease_does(kind: type[Connector]) -> None:
    for lease in (None, 7.0):
        kv = kind(lease=lease)
        start = CTX.now if kind.order is Order.CONCURRENT else RECEIVED
        assert start < kv.handoff(CTX, reply_for(kind)).expires_at < start + kv.lease
        assert kv.lease == (lease or kv.default_lease)


@every
def test_a_null_reply_is_legal_or_a_fault_as_the_connector_says(kind: type[Connector]) -> None:
    kv, sample = kind(), SAMPLES[kind]
    null = None if kind.order is Order.CONCURRENT else PrefillReply(None, sample.prompt_tokens, RECEIVED)
    if sample.null_is_legal:
        assert kv.handoff(CTX, null).connector == kind.name
    else:
        with pytest.raises(HandoffInvalid, match="null; expected") as caught:
            kv.handoff(CTX, null)
        assert caught.value.engine == PREFILL.id


@every
def test_a_partial_handoff_never_reaches_decode(kind: type[Connector]) -> None:
    sample = SAMPLES[kind]
    for field in sample.required:
        for broken in ("absent", None, "", -1, [], {}, [[]], "x" * 500):
            if sample.reply is None or (isinstance(broken, str) and broken and isinstance(sample.reply[field], str)):
                continue
            reply = reply_for(kind, **{field: broken})
            assert reply is not None
            if broken == "absent":
                reply = PrefillReply({k: v for k, v in (reply.params or {}).items() if k != field}, 110, RECEIVED)
                if field in sample.may_be_absent:
                    continue
            with pytest.raises(HandoffInvalid, match=field):
                kind().handoff(CTX, reply)


@every
@given(
    junk=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
        max_leaves=8,
    ),
    field=st.sampled_from(["remote_block_ids", "remote_port", "tp_size", "remote_host", "remote_num_tokens"]),
)
def test_junk_is_refused_or_well_formed(kind: type[Connector], junk: Any, field: str) -> None:
    """Whatever prefill says in a field, the connector answers with a checked handoff or with HandoffInvalid."""
    sample = SAMPLES[kind].reply
    if sample is None:
        return  # this connector reads nothing of prefill's reply
    try:
        handoff = kind().handoff(CTX, reply_for(kind, **{field: junk}))
    except HandoffInvalid as e:
        assert field in e.message
    else:
        assert handoff.params[field] == junk
        assert isinstance(junk, type(sample[field]))


@every
def test_both_sides_of_a_pair_are_configured_alike(kind: type[Connector]) -> None:
    kv = kind(lease=11.0)
    sides = {role: kv.engine_config(role, device="cpu") for role in Role}
    assert {side["kv_connector"] for side in sides.values()} == {kind.name}
    assert sides[Role.PREFILL]["kv_role"] in ("kv_producer", "kv_both")
    assert sides[Role.DECODE]["kv_role"] in ("kv_consumer", "kv_both")
    assert sides[Role.BOTH]["kv_role"] == "kv_both"
    assert {side.get("kv_buffer_device") for side in sides.values()} == {sides[Role.BOTH].get("kv_buffer_device")}
    env = kv.engine_env(host="127.0.0.1", side_port=5600)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in env.items())


@every
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"model": "n"}, "model differs: prefill .*'m', decode .*'n'"),
        ({"max_model_len": 1024}, "max_model_len differs: prefill .*2048, decode .*1024"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size differs"),
        ({"connector": "Other"}, "connector differs"),
    ],
)
def test_a_pair_that_cannot_work_is_told_why(kind: type[Connector], changed: dict[str, Any], what: str) -> None:
    facts: dict[str, Any] = {
        "connector": kind.name,
        "model": "m",
        "max_model_len": 2048,
        "tensor_parallel_size": 1,
    }
    good = EngineFacts(PREFILL, **facts)
    assert kind().check(good, EngineFacts(DECODE, **facts)) == []
    assert kind().check(good, EngineFacts(DECODE)) == [], "what is not known is not a fault"
    (fault,) = kind().check(good, EngineFacts(DECODE, **{**facts, **changed}))
    assert re.search(what, fault)


def test_no_connector_is_named_outside_its_own_room() -> None:
    root = Path(__file__).parents[3]
    for path in (p for room in ("gateway", "engines", "cli") for p in (root / room).rglob("*.py")):
        text = path.read_text()
        assert not [kind.name for kind in CONNECTORS if kind.name in text], f"{path.name} names a connector"
