"""Two sides of a split: the six invariants in the seed's order, then those of practice, each with its message."""

from __future__ import annotations

from typing import Any

import pytest

from common.connectors import connector
from common.connectors.base import EngineFacts
from common.connectors.nixl import NixlConnector
from common.engine import Engine, Role
from common.topology import Side, check_pair
from common.topology.invariants import faults_of
from tests.unit.topology.files import four, kv, topology

P, D = "stage 0 (thinker prefill)", "stage 1 (thinker decode)"


def told(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None) -> list[str]:
    return [f"{fault.rule}: {fault.what}; {fault.do}" for fault in faults_of(topology(four(prefill, decode)))]


def test_a_pair_that_is_right() -> None:
    assert told() == []
    assert told(kv("kv_both"), kv("kv_both")) == []


@pytest.mark.parametrize(("side", "name", "other"), [(0, P, D), (1, D, P)])
def test_both_define_kv_transfer_config(side: int, name: str, other: str) -> None:
    none = {"kv_transfer_config": None}
    assert (told(none) if side == 0 else told({}, none)) == [
        f"pair.kv_transfer_config: {name} has no kv_transfer_config, and is one side of a split with {other}; "
        "give both a kv_transfer_config, or write pd: on the thinker and let duet topology expand do it"
    ]


@pytest.mark.parametrize("role", ["kv_consumer", "kv_producers", None])
def test_prefill_produces(role: str | None) -> None:
    assert told(kv(role)) == [
        f"pair.kv_role: {P} has kv_role {role!r}; expected kv_producer or kv_both; "
        "set kv_role: kv_producer: prefill produces KV"
    ]


def test_decode_consumes() -> None:
    assert told({}, kv("kv_producer")) == [
        f"pair.kv_role: {D} has kv_role 'kv_producer'; expected kv_consumer or kv_both; "
        "set kv_role: kv_consumer: decode consumes KV"
    ]


def test_one_connector() -> None:
    assert told({}, kv("kv_consumer", kv_connector="MooncakeConnector")) == [
        f"pair.connector: kv_connector differs: {P} has 'NixlConnector', {D} has 'MooncakeConnector'; "
        "name the same connector on both: KV goes from one engine's to the other's"
    ]


def test_one_that_names_none() -> None:
    assert told({}, {"kv_transfer_config": {"kv_role": "kv_consumer"}}) == [
        f"pair.connector: the kv_transfer_config of {D} names no kv_connector; "
        f"name the one that {P} has: 'NixlConnector'"
    ]


@pytest.mark.parametrize(
    ("name", "ours", "theirs"), [("kv_buffer_device", "cuda", "cpu"), ("kv_buffer_size", 1e9, 2e9)]
)
def test_buffers_agree_where_both_say(name: str, ours: Any, theirs: Any) -> None:
    assert told(kv("kv_producer", **{name: ours}), kv("kv_consumer", **{name: theirs})) == [
        f"pair.{name}: {name} differs: {P} has {ours!r}, {D} has {theirs!r}; "
        "set the same on both, or leave it out on one"
    ]
    assert told(kv("kv_producer", **{name: ours})) == []


def test_one_tensor_parallel_size() -> None:
    assert told({}, {"tensor_parallel_size": 2, "devices": "3,4"}) == [
        f"pair.tensor_parallel_size: tensor_parallel_size differs: {P} has 1, {D} has 2; "
        "set the same on both: each rank of decode fetches from the same rank of prefill"
    ]
    assert told({"tensor_parallel_size": 1}) == []


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("model", "m", "the engine's default"),
        ("revision", "main", "the engine's default"),
        ("hf_overrides", {"a": 1}, "the engine's default"),
        ("quantization", "fp8", "the engine's default"),
        ("tokenizer", "t", "the engine's default"),
        ("tokenizer_mode", "slow", "'auto'"),
        ("max_model_len", 4096, "the engine's default"),
        ("dtype", "float32", "'auto'"),
        ("kv_cache_dtype", "fp8", "'auto'"),
        ("block_size", 32, "the engine's default"),
    ],
)
def test_what_must_be_the_same(name: str, value: Any, ours: str) -> None:
    (only,) = told({}, {name: value})
    assert only.startswith(f"pair.{name}: {name} differs: {P} has {ours}, {D} has {value!r}; set the same on both: ")
    assert told({name: value}, {name: value}) == []


def test_what_the_file_says_for_all_counts_for_both() -> None:
    values = {**four({}, {"dtype": "bfloat16"}), "dtype": "bfloat16"}
    assert faults_of(topology(values)) == []


def engine(leg: Role, **identity: Any) -> Side:
    where = {Role.PREFILL: "http://10.0.0.1:8100", Role.DECODE: "http://10.0.0.3:8200"}[leg]
    return Side.of_identity(Engine.at(where, leg), leg, identity)


def test_versions_of_vllm_that_run() -> None:
    faults = check_pair(engine(Role.PREFILL, vllm_version="0.32.0"), engine(Role.DECODE, vllm_version="0.31.1"))
    assert [fault.what for fault in faults] == [
        "vllm_version differs: prefill 10.0.0.1:8100 has '0.32.0', decode 10.0.0.3:8200 has '0.31.1'"
    ]


def test_what_an_engine_does_not_say_is_not_compared() -> None:
    assert check_pair(engine(Role.PREFILL, revision="main", block_size=16), engine(Role.DECODE, revision=None)) == []


def test_an_engine_beside_a_file() -> None:
    stage = topology(four({"revision": "main", "block_size": 32}))
    planned = Side.of_stage(stage, stage.stage(0))
    same = {"connector": "NixlConnector", "tensor_parallel_size": 1, "revision": "main", "block_size": 32}
    assert check_pair(planned, engine(Role.DECODE, **same)) == []
    faults = check_pair(planned, engine(Role.DECODE, **{**same, "revision": "other", "connector": "MooncakeConnector"}))
    assert [fault.rule for fault in faults] == ["pair.connector", "pair.revision"]


def test_an_engine_that_was_started_for_the_other_leg() -> None:
    (fault,) = check_pair(engine(Role.PREFILL, role="decode"), engine(Role.DECODE, role="both"))
    assert str(fault) == (
        "prefill 10.0.0.1:8100 says that it was started for decode; expected prefill or both; "
        "list it as decode, or start it with --role prefill"
    )


class Picky(NixlConnector):
    """A connector that compares a setting of its own."""

    def check(self, prefill: EngineFacts, decode: EngineFacts) -> list[str]:
        ours, theirs = prefill.settings.get("backends"), decode.settings.get("backends")
        return [] if ours == theirs else [f"backends differ: {ours} and {theirs}"]


def test_what_the_connector_itself_compares_is_told_too() -> None:
    it = topology(four(kv("kv_producer", kv_connector_extra_config={"backends": ["UCX"]})))
    sides = [Side.of_stage(it, it.stage(id_)) for id_ in (0, 1)]
    assert check_pair(*sides, connector("nixl")) == []
    (fault,) = check_pair(*sides, Picky())
    assert (fault.rule, fault.what) == ("pair.connector_settings", "backends differ: ['UCX'] and None")
