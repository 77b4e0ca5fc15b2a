"""Three stages become four. The tests of the first part are the six demands on a complete integration, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from common.connectors import CONNECTORS, connector
from common.engine import Role
from common.errors import ConfigurationError
from common.topology import Topology, TopologyInvalid, plan
from common.topology.document import parse
from common.topology.expand import How, expand, unsplit
from common.topology.invariants import check
from common.topology.read import of, read
from common.topology.write import as_document, as_yaml
from tests.unit.topology.files import QWEN, ROOT, TINY, four, three, topology, written

GOLDEN = Path(__file__).parent / "golden" / "qwen3_omni_moe_pd.yaml"
MULTI = "Multi(NixlConnector, ExampleConnector)"


@pytest.fixture
def qwen() -> Topology:
    return expand(read(QWEN)).topology


def documents(it: Topology) -> list[dict[str, Any]]:
    return list(as_document(it)["stages"])


def test_the_thinker_is_split_and_nothing_else(qwen: Topology) -> None:
    assert [(s.id, s.kind, s.role) for s in qwen] == [
        (0, "thinker", Role.PREFILL),
        (1, "thinker", Role.DECODE),
        (2, "talker", Role.TALKER),
        (3, "code2wav", Role.CODE2WAV),
    ]
    before = read(QWEN)
    assert [s.settings for s in qwen][2:] == [s.settings for s in before][1:]


def test_ids_sources_and_stage_connectors_move_up(qwen: Topology) -> None:
    assert [s.sources for s in qwen] == [(), (0,), (1,), (2,)]
    assert [s.inputs for s in qwen] == [
        {},
        {},
        {1: "connector_of_shared_memory"},
        {2: "connector_of_shared_memory"},
    ]
    assert documents(qwen)[2]["input_connectors"] == {"from_stage_1": "connector_of_shared_memory"}


def test_what_the_thinker_sends_is_sent_by_decode() -> None:
    values = three(output_connectors={"to_stage_1": "shm"})
    values |= {"connectors": {"shm": {"name": "SharedMemoryConnector"}}, "edges": [{"from": 0, "to": 1}]}
    it = expand(topology(values)).topology
    prefill, decode, *_ = documents(it)
    assert decode["output_connectors"] == {"to_stage_2": "shm"}
    assert "output_connectors" not in prefill
    assert it.edges == ({"from": 1, "to": 2},)
    check(it)


@pytest.mark.parametrize("name", [*(kind.name for kind in CONNECTORS), MULTI])
def test_each_side_gets_its_configuration_from_the_connector_itself(name: str) -> None:
    it = expand(topology(three(pd={"connector": name, "lease": 12.0}))).topology
    kv = connector(name, lease=12.0)
    for side, role in ((it.stage(0), Role.PREFILL), (it.stage(1), Role.DECODE)):
        assert side.settings.get("kv_transfer_config") == kv.engine_config(role, device="cuda")
    check(it)


def test_prefill_and_decode_have_devices_of_their_own(qwen: Topology) -> None:
    assert [s.settings.get("devices") for s in qwen] == ["0", "2", "1", "1"]
    assert [s.settings.get("devices") for s in qwen.on("npu")] == ["0,1", "3,4", "2", "2"]
    assert [s.settings.get("devices") for s in qwen.on("xpu")] == ["0,1,2,3", "5,6,7,8", "4", "4"]


def test_both_final_outputs_stay(qwen: Topology) -> None:
    assert [s.output for s in qwen] == [None, "text", None, "audio"]
    shown = [(s["final_output"], s.get("final_output_type")) for s in documents(qwen)]
    assert shown == [(False, None), (True, "text"), (False, None), (True, "audio")]


def test_no_connector_is_named_in_the_code() -> None:
    for file in (ROOT / "common" / "topology").glob("*.py"):
        text = file.read_text()
        assert [kind.name for kind in CONNECTORS if kind.name in text] == [], file


def test_the_plan_of_the_real_file(request: pytest.FixtureRequest) -> None:
    assert as_yaml(plan(QWEN, pd=True)) == GOLDEN.read_text()


@pytest.mark.parametrize("file", [QWEN, TINY], ids=lambda f: f.stem)
def test_a_plan_is_a_file_that_says_the_same(file: Path) -> None:
    first = plan(file, pd=True)
    text = as_yaml(first)
    again = of(parse(text.encode(), str(file)))
    assert again == first.topology
    assert expand(again).topology is again
    check(again)


def test_as_the_file_says() -> None:
    assert plan(QWEN).topology.pair is None
    assert plan(QWEN, pd=True).topology.pair is not None
    assert plan(TINY).topology.pair is not None
    assert [s.short for s in plan(TINY, pd=False).topology] == ["thinker", "talker", "code2wav"]
    assert "pd" not in str(as_document(plan(TINY, pd=False).topology))


def test_an_empty_pd_is_a_split_of_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, yaml.safe_dump(three()).replace("stage_id: 0", "stage_id: 0\n  pd:"))
    assert plan(file).topology.pair is not None


def test_a_split_by_hand_cannot_be_taken_back() -> None:
    with pytest.raises(ConfigurationError, match=r"stages 0 and 1 are a split written by hand.*write one thinker"):
        unsplit(topology(four()))


def test_text_alone_is_split_too() -> None:
    it = expand(topology({"pipeline": "text", "stages": [{"stage_id": 0, "devices": "0"}]})).topology
    assert [(s.short, s.output) for s in it] == [("prefill", None), ("decode", "text")]
    check(it)


def test_a_pool_a_role() -> None:
    pd = {"prefill": {"num_replicas": 2, "devices": "0,3"}, "decode": {"num_replicas": 3}}
    it = expand(topology(three(pd=pd))).topology
    assert it.stage(0).settings.get("devices") == "0,3"
    assert it.stage(1).settings.get("devices") == "4,5,6"
    check(it)


def test_on_cpus_sides_share() -> None:
    it = expand(topology(three(devices="cpu"))).topology
    assert [s.settings.get("devices") for s in it] == ["cpu", "cpu", "1", "2"]
    assert it.stage(1).settings.get("kv_transfer_config")["kv_buffer_device"] == "cpu"
    check(it)


def test_what_pd_overrides_is_named() -> None:
    expansion = expand(topology(three(max_num_seqs=64, env={"A": "1"}, pd={"decode": {"max_num_seqs": 256}})))
    notes = [note for note in expansion.notes if note.how is How.OVERRIDDEN]
    assert [str(note) for note in notes] == [
        "stage 1: max_num_seqs is 256 by pd, overriding 64 of stages[0].max_num_seqs"
    ]
    assert [s.settings.get("max_num_seqs") for s in expansion.topology][:2] == [64, 256]


def test_environment_and_sampling_are_added_to() -> None:
    pd = {"decode": {"env": {"B": "2"}, "default_sampling_params": {"temperature": 1.0}}}
    it = expand(topology(three(env={"A": "1"}, default_sampling_params={"temperature": 0.0, "top_k": 5}, pd=pd)))
    decode = it.topology.stage(1).settings
    assert decode.get("env") == {"A": "1", "B": "2"}
    assert decode.get("default_sampling_params") == {"temperature": 1.0, "top_k": 5}


def test_what_a_side_adds_to_its_connector_stands_over_it() -> None:
    extra = {"backends": ["UCX"]}
    pd = {"decode": {"kv_transfer_config": {"kv_connector_extra_config": extra, "kv_buffer_device": "cpu"}}}
    config = expand(topology(three(pd=pd))).topology.stage(1).settings.get("kv_transfer_config")
    assert config["kv_connector_extra_config"] == {"kv_lease_duration": 30.0, **extra}
    assert (config["kv_buffer_device"], config["kv_role"]) == ("cpu", "kv_consumer")


def test_a_platform_beats_pd_and_its_own_pd_beats_it() -> None:
    values = three(max_num_seqs=1, pd={"decode": {"max_num_seqs": 2}})
    entry = {"stage_id": 0, "max_num_seqs": 3, "pd": {"prefill": {"max_num_seqs": 4}}}
    values["platforms"] = {"rocm": {"stages": [entry]}}
    it = expand(topology(values)).topology
    assert [s.settings.get("max_num_seqs") for s in it][:2] == [1, 2]
    assert [s.settings.get("max_num_seqs") for s in it.on("rocm")][:2] == [4, 3]


def test_a_platform_that_takes_decodes_device_moves_decode() -> None:
    values = three()
    values["platforms"] = {"rocm": {"stages": [{"stage_id": 1, "devices": "3"}]}}
    it = expand(topology(values)).topology
    assert [s.settings.get("devices") for s in it][:3] == ["0", "3", "1"]
    assert [s.settings.get("devices") for s in it.on("rocm")][:3] == ["0", "1", "3"]
    check(it)


def test_a_platform_that_the_file_does_not_name_has_its_own_buffers() -> None:
    it = plan(QWEN, pd=True, platform="cpu").topology.on("cpu")
    assert it.stage(0).settings.get("kv_transfer_config")["kv_buffer_device"] == "cpu"


def test_devices_without_numbers_are_not_guessed() -> None:
    values = three(devices="GPU-1f2e")
    with pytest.raises(TopologyInvalid, match=r"both have GPU-1f2e; expected sets apart.*pd\.decode\.devices"):
        check(expand(topology(values)).topology)
