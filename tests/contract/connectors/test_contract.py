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
from common.connectors.base import EngineFacts, Handoff, HandoffContext, Order, PrefillReply
from common.engine import Engine, Role
from common.errors import ConfigurationError, EngineBroken, HandoffInvalid
from tests.contract.connectors.samples import SAMPLES

DECODE = Engine.at("http://127.0.0.1:8200", Role.DECODE)
NOW, RECEIVED = 1000.0, 1010.0

every = pytest.mark.parametrize("name", SAMPLES)


def ctx(name: str) -> HandoffContext:
    return HandoffContext("abc-1-kv", SAMPLES[name].prefill(), DECODE, now=NOW)


def reply(params: Any) -> PrefillReply:
    return PrefillReply(params, 110, RECEIVED)


def handed_over(kv: Connector, name: str, **changes: Any) -> Handoff:
    """The handoff from what prefill said, with changes; from nothing where the connector does not wait for it."""
    sample = SAMPLES[name].reply
    if kv.order is Order.CONCURRENT:
        return kv.handoff(ctx(name), None)
    return kv.handoff(ctx(name), reply(None if sample is None else {**sample, **changes}))


@pytest.mark.parametrize("kind", CONNECTORS, ids=lambda kind: kind.name)
def test_it_is_found_by_each_of_its_names(kind: type[Connector]) -> None:
    for name in (kind.name, kind.name.upper(), f" {kind.name} ", *kind.aliases):
        assert type(connector(name)) is kind


def test_names_and_aliases_are_all_different() -> None:
    names = [name.lower() for kind in CONNECTORS for name in (kind.name, *kind.aliases)]
    assert len(names) == len(set(names))


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match=f"'Nope' is not known; expected one of .*{CONNECTORS[0].name}"):
        connector("Nope")


@every
def test_what_engines_are_sent_is_json(name: str) -> None:
    kv = connector(name)
    for params in (kv.prefill_params(ctx(name)), kv.decode_params(ctx(name), handed_over(kv, name))):
        assert json.loads(json.dumps(params)) == params
    assert all(key == key.lower() for key in kv.prefill_headers(ctx(name)))


@every
def test_both_legs_speak_of_the_same_transfer(name: str) -> None:
    """Where legs run at once, only an id that is new for each attempt ties them together."""
    kv = connector(name)
    if kv.order is Order.CONCURRENT:
        ids = [(p or {})["transfer_id"] for p in (kv.prefill_params(ctx(name)), handed_over(kv, name).params)]
        assert ids == [ctx(name).transfer_id] * 2


@every
def test_the_handoff_ends_before_the_lease_does(name: str) -> None:
    for lease in (None, 7.0):
        kv = connector(name, lease=lease)
        start = NOW if kv.order is Order.CONCURRENT else RECEIVED
        assert start < handed_over(kv, name).expires_at < start + kv.lease
        assert kv.lease == (lease or kv.default_lease)


@every
def test_a_null_reply_is_legal_or_a_fault_as_the_connector_says(name: str) -> None:
    kv = connector(name)
    if SAMPLES[name].reply is None:
        assert handed_over(kv, name).connector == kv.name
        return
    with pytest.raises(HandoffInvalid, match="null; expected") as caught:
        kv.handoff(ctx(name), reply(None))
    assert caught.value.engine == ctx(name).prefill.id


@every
def test_a_partial_handoff_never_reaches_decode(name: str) -> None:
    kv, sample = connector(name), SAMPLES[name]
    whole = dict(sample.reply or {})
    for field in sample.required:
        without = {k: v for k, v in whole.items() if k != field}
        wrong = [None, "", -1, [], {}, [[]]] + ([] if isinstance(whole[field], str) else ["x" * 500])
        bad = [{**whole, field: value} for value in wrong] + ([] if field in sample.may_be_absent else [without])
        for params in bad:
            with pytest.raises(HandoffInvalid, match=field):
                kv.handoff(ctx(name), reply(params))


@every
def test_fewer_tokens_than_the_prompt_never_reach_decode(name: str) -> None:
    if "remote_num_tokens" in SAMPLES[name].required:
        with pytest.raises(HandoffInvalid, match="covers the prompt of 110 tokens"):
            handed_over(connector(name), name, remote_num_tokens=100)
        assert handed_over(connector(name), name, remote_num_tokens=109).prompt_tokens == 109, "models with state"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)


@every
@given(junk=JSON, data=st.data())
def test_junk_is_refused_or_well_formed(name: str, junk: Any, data: st.DataObject) -> None:
    """Whatever prefill says in a field, the connector answers with a checked handoff or with HandoffInvalid."""
    required = SAMPLES[name].required
    if not required:
        assert handed_over(connector(name), name, anything=junk).connector
        return
    field = data.draw(st.sampled_from(required))
    try:
        handoff = handed_over(connector(name), name, **{field: junk})
    except HandoffInvalid as e:
        assert field in e.message
    else:
        assert handoff.params[field] == junk
        assert isinstance(junk, type((SAMPLES[name].reply or {})[field]))


@every
def test_what_it_looks_up_it_can_read(name: str) -> None:
    kv, sample, bare = connector(name), SAMPLES[name], Engine.at("http://127.0.0.1:8100", Role.PREFILL)
    lookup = kv.lookup(bare)
    if lookup is None:
        assert sample.looked_up is None
        return
    assert sample.looked_up is not None
    assert lookup.base.startswith("http://127.0.0.1:")
    assert lookup.path.startswith("/")
    assert kv.learn(bare, sample.looked_up) == sample.facts
    for junk in (
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"0":{}}',
        b'{"x":{"engine_id":"a"}}',
        b'{"0":{"engine_id":7}}',
        b"\xff",
    ):
        with pytest.raises(EngineBroken, match="expected"):
            kv.learn(bare, junk)
    with pytest.raises(HandoffInvalid, match="not known"):
        kv.handoff(HandoffContext("t", bare, DECODE, NOW), None)


@every
def test_what_the_engine_is_started_with_the_gateway_can_be_told(name: str) -> None:
    kv = connector(name)
    env = kv.engine_env(host="127.0.0.1", side_port=5600)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in env.items())
    options = kv.url_options(side_port=5600)
    assert set(options) <= set(kv.options)
    told = Engine("e:1", "http://e:1", Role.PREFILL, options)
    lookup = kv.lookup(told)
    if options and lookup is not None:
        assert lookup.base.endswith(":5600")


@every
def test_both_sides_of_a_pair_are_configured_alike(name: str) -> None:
    kv = connector(name, lease=11.0)
    sides = {role: kv.engine_config(role, device="cpu") for role in Role if role.thinks}
    assert {side["kv_connector"] for side in sides.values()} == {kv.name}
    assert sides[Role.PREFILL]["kv_role"] in ("kv_producer", "kv_both")
    assert sides[Role.DECODE]["kv_role"] in ("kv_consumer", "kv_both")
    assert sides[Role.BOTH]["kv_role"] == "kv_both"
    assert {side.get("kv_buffer_device") for side in sides.values()} == {sides[Role.BOTH].get("kv_buffer_device")}
    assert json.loads(json.dumps(sides)) == sides


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
def test_a_pair_that_cannot_work_is_told_why(name: str, changed: dict[str, Any], what: str) -> None:
    kv = connector(name)
    facts: dict[str, Any] = {"connector": kv.name, "model": "m", "max_model_len": 2048, "tensor_parallel_size": 1}
    good = EngineFacts(SAMPLES[name].prefill(), **facts)
    assert kv.check(good, EngineFacts(DECODE, **facts)) == []
    assert kv.check(good, EngineFacts(DECODE)) == [], "what is not known is not a fault"
    (fault,) = kv.check(good, EngineFacts(DECODE, **{**facts, **changed}))
    assert re.search(what, fault)


def test_a_prompt_that_would_kill_decode_is_refused() -> None:
    with pytest.raises(HandoffInvalid, match="has 1 token"):
        connector("example").handoff(ctx("ExampleConnector"), PrefillReply(None, 1, RECEIVED))
    with pytest.raises(HandoffInvalid, match="nobody knows how long the prompt is"):
        connector("example").handoff(ctx("ExampleConnector"), PrefillReply(None, None, RECEIVED))


@pytest.mark.parametrize("name", ["Multi()", "multi(nixl, mooncake)", "MultiConnector", "Multi(Nope)", "Multi(nixl"])
def test_a_composite_that_cannot_work_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        connector(name)


def test_ranks_share_the_work_and_prefill_is_told_which_one_decode_will_ask() -> None:
    kv, prefill = connector("mooncake"), SAMPLES["MooncakeConnector"].prefill()
    seen = set()
    for n in range(50):
        one = HandoffContext(f"t{n}", prefill, DECODE, NOW)
        rank = kv.prefill_headers(one)["x-data-parallel-rank"]
        assert kv.handoff(one, None).params["remote_engine_id"] == f"e{rank}"
        seen.add(rank)
    assert seen == {"0", "1"}
    single = Engine("e:1", "http://e:1", Role.PREFILL, {"engine_id.0": "e0"})
    assert kv.prefill_headers(HandoffContext("t", single, DECODE, NOW)) == {}


@pytest.mark.parametrize("port", ["", "0", "x", "70000", "-1"])
def test_a_wrong_bootstrap_port_is_told(port: str) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_port"):
        connector("mooncake").lookup(Engine.at(f"http://e:1?bootstrap_port={port}", Role.PREFILL))


def test_no_connector_is_named_outside_its_own_room() -> None:
    """But in `engines/compat`, where what vLLM calls so is mended."""
    root = Path(__file__).parents[3]
    for path in (p for room in ("gateway", "engines", "cli") for p in (root / room).rglob("*.py")):
        text = path.read_text() if path.parent != root / "engines" / "compat" else ""
        assert not [kind.name for kind in CONNECTORS if kind.name in text], f"{path.name} names a connector"
