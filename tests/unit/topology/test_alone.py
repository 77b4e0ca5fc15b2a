"""One engine's settings, held to what can be known without its partner: in the words of a file's rules."""

from __future__ import annotations

from typing import Any

import pytest

from common.engine import Role
from common.topology import TopologyInvalid
from common.topology.alone import check_alone
from common.topology.invariants import faults_of
from common.topology.pipelines import Kind
from tests.unit.topology.files import four, kv, topology


def told(kind: Kind, role: Role, settings: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        check_alone(kind, role, settings)
    except TopologyInvalid as e:
        return [(fault.rule, f"{fault.what}; {fault.do}") for fault in e.faults]
    return []


@pytest.mark.parametrize("wrong", [kv("kv_consumer"), kv("kv_producer", kv_connector="Nixle"), {"side_port": 8100}])
def test_the_message_is_that_of_the_file(wrong: dict[str, Any]) -> None:
    prefill = {"port": 8100, **kv("kv_producer"), **wrong}
    of_file = {
        (fault.rule, f"{fault.what}; {fault.do}".replace("stage 0 ", "this engine "))
        for fault in faults_of(topology(four(prefill)))
    }
    found = told(Kind.THINKER, Role.PREFILL, prefill)
    assert len(found) == 1
    assert set(found) <= of_file


def test_a_side_without_a_configuration() -> None:
    ((rule, what),) = told(Kind.THINKER, Role.DECODE, {})
    assert rule == "pair.kv_transfer_config"
    assert what.startswith("this engine (thinker decode) has no kv_transfer_config")


@pytest.mark.parametrize(
    ("kind", "role", "settings"),
    [
        (Kind.THINKER, Role.PREFILL, {**kv("kv_both"), "port": 8100, "side_port": 8101}),
        (Kind.THINKER, Role.BOTH, {"enable_prefix_caching": True}),
        (Kind.TALKER, Role.TALKER, {"enable_prefix_caching": False}),
    ],
)
def test_what_is_right_alone(kind: Kind, role: Role, settings: dict[str, Any]) -> None:
    assert told(kind, role, settings) == []


def test_a_talker_without_a_prefix_cache() -> None:
    ((rule, what),) = told(Kind.TALKER, Role.TALKER, {"enable_prefix_caching": True})
    assert rule == "talker.enable_prefix_caching"
    assert what.startswith("this engine (talker) has enable_prefix_caching true; expected false")
