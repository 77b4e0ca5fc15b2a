"""Devices, memory and ports: what may be shared, and how many there must be. What is refused stands in `broken/`."""

from __future__ import annotations

from typing import Any

import pytest

from common.topology.devices import free
from common.topology.expand import expand
from common.topology.invariants import faults_of
from tests.unit.topology.files import four, kv, three, topology


def rules(values: dict[str, Any]) -> list[str]:
    it = topology(values)
    return [fault.rule for fault in faults_of(expand(it).topology if it.split is not None else it)]


@pytest.mark.parametrize(
    ("number", "taken", "ids"),
    [(1, {"0", "1"}, "2"), (2, {"0", "2"}, "1,3"), (1, set(), "0"), (1, {"0", "GPU-1"}, None), (1, {"²"}, None)],
)
def test_the_lowest_ids_that_nobody_has(number: int, taken: set[str], ids: str | None) -> None:
    assert free(number, taken) == ids


@pytest.mark.parametrize(
    "thinker",
    [
        {"devices": "0,3", "tensor_parallel_size": 2},
        {"devices": "0,3,4,5", "tensor_parallel_size": 2, "num_replicas": 2},
        {"devices": "0,3,4,5", "pipeline_parallel_size": 2, "data_parallel_size": 2},
        {"devices": "cpu", "num_replicas": 3},
        {"devices": None},
    ],
)
def test_as_many_devices_as_engines_take(thinker: dict[str, Any]) -> None:
    assert rules(three(**thinker)) == []


def test_sizes_of_the_file_count_too() -> None:
    assert rules({**three(devices="0,3"), "pipeline_parallel_size": 2}) == ["devices.count"] * 2
    both = {**three(devices="0,3"), "pipeline_parallel_size": 2}
    for stage in both["stages"][1:]:
        stage["pipeline_parallel_size"] = 1
    assert rules(both) == []


def test_memory_that_is_not_set_is_vllms_default() -> None:
    values = three()
    values["stages"][2]["devices"] = "1"
    assert rules(values) == ["devices.memory"]
    values["stages"][1]["gpu_memory_utilization"] = 0.6
    values["stages"][2]["gpu_memory_utilization"] = 0.4
    assert rules(values) == []


def test_the_thinker_shares_with_nobody_by_accident() -> None:
    values = three(pd={"decode": {"devices": "1"}})
    assert rules(values) == ["devices.memory"]


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        ({"side_port": 5600}, {"side_port": 5601}, []),
        ({"side_port": 5600, "data_parallel_size": 2, "devices": "0,4"}, {"side_port": 5601}, ["ports"]),
        ({"side_port": 5600}, {"port": 5600}, ["ports"]),
        ({"port": 8100, "num_replicas": 2, "devices": "0,4"}, {"port": 8101}, ["ports"]),
        ({"port": 8100, "num_replicas": 2, "devices": "0,4"}, {"port": 8102}, []),
        (
            {"env": {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}},
            {"env": {"VLLM_NIXL_SIDE_CHANNEL_PORT": 5600}},
            ["ports"],
        ),
        ({"env": {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}}, {}, []),
        ({"env": {"SOMETHING": "5600"}}, {"env": {"SOMETHING": "5600"}}, []),
    ],
)
def test_ports_of_one_machine(prefill: dict[str, Any], decode: dict[str, Any], expected: list[str]) -> None:
    found = rules(three(pd={"prefill": prefill, "decode": decode}))
    assert [rule for rule in found if rule == "ports"] == expected


def test_each_connector_has_ports_of_its_own_name() -> None:
    env = {"env": {"VLLM_MOONCAKE_BOOTSTRAP_PORT": 8998}}
    assert rules(three(**env, pd={"connector": "mooncake"})) == ["ports"]
    assert rules(three(**env, pd={"connector": "nixl"})) == []


def test_an_engine_id_of_its_own() -> None:
    assert rules(four(kv("kv_producer", engine_id="a"), kv("kv_consumer", engine_id="b"))) == []
    pool = {**kv("kv_producer", engine_id="a"), "num_replicas": 2, "devices": "0,4"}
    assert rules(four(pool)) == ["engine_id"]


def test_a_fault_of_a_platform_is_told_for_it_alone() -> None:
    values = three()
    values["platforms"] = {"rocm": {"stages": [{"stage_id": 0, "devices": "0,4"}]}, "cuda": {"stages": []}}
    (fault,) = faults_of(topology(values))
    assert fault.what.startswith("on rocm: stage 0 (thinker) has devices '0,4'")
    assert str(fault.place) == "platforms.rocm.stages[0].devices"
    assert faults_of(topology(values), platform="cuda") == []
    assert len(faults_of(topology(values), platform="rocm")) == 1


def test_a_lease_that_is_long_enough() -> None:
    assert rules(three(pd={"lease": 30.0, "expected_queueing": 26.9})) == []
    assert rules(three(pd={"lease": 30.0, "expected_queueing": 27.0})) == ["pd.lease"]
    assert rules(three(pd={"expected_queueing": 40.0})) == ["pd.lease"]
    assert rules(three(pd={"connector": "mooncake", "expected_queueing": 40.0})) == []
