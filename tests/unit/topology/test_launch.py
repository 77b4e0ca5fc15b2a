"""A topology as engines to start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.connectors import connector
from common.engine import Role
from common.topology import EnginePlan, engines, plan
from common.topology.expand import expand
from common.topology.launch import flag
from tests.unit.topology.files import QWEN, TINY, four, kv, three, topology, with_vllm


def of(values: dict[str, Any], platform: str | None = None) -> dict[str, EnginePlan]:
    it = topology(values)
    return {e.name: e for e in engines(expand(it).topology if it.split is not None else it, platform=platform)}


def test_who_is_fed_stands_before_who_feeds() -> None:
    assert [e.name for e in engines(plan(TINY).topology)] == ["code2wav", "talker", "decode", "prefill"]
    assert [e.role for e in engines(plan(TINY).topology)] == [Role.CODE2WAV, Role.TALKER, Role.DECODE, Role.PREFILL]


def test_a_pool_is_an_engine_for_each_replica_on_devices_and_ports_of_its_own() -> None:
    side = {"num_replicas": 2, "devices": "3,4,5,6", "port": 8100, "side_port": 5600, "data_parallel_size": 2}
    found = of(three(pd={"prefill": side}))
    assert list(found) == ["code2wav", "talker", "decode", "prefill-1", "prefill-2"]
    one, two = found["prefill-1"], found["prefill-2"]
    assert (one.devices, two.devices) == (("3", "4"), ("5", "6"))
    assert (one.env, two.env) == ({"CUDA_VISIBLE_DEVICES": "3,4"}, {"CUDA_VISIBLE_DEVICES": "5,6"})
    assert (one.port, two.port, one.side_port, two.side_port) == (8100, 8101, 5600, 5602)
    assert (found["decode"].port, found["decode"].side_port) == (None, None)


def test_each_side_is_configured_by_the_connector() -> None:
    for engine in engines(plan(TINY).topology)[2:]:
        at = engine.args.index("--kv-transfer-config")
        expected = connector("nixl", lease=30).engine_config(engine.role, device="cpu")
        assert json.loads(engine.args[at + 1]) == expected


def test_a_cpu_is_shown_no_devices() -> None:
    for engine in engines(plan(TINY).topology):
        assert (engine.device, engine.devices, engine.env, engine.model) == ("cpu", (), {}, "omni-tiny")


@pytest.mark.parametrize(
    ("platform", "variable", "device"),
    [
        (None, "CUDA_VISIBLE_DEVICES", "cuda"),
        ("rocm", "HIP_VISIBLE_DEVICES", "cuda"),
        ("npu", "ASCEND_RT_VISIBLE_DEVICES", "npu"),
    ],
)
def test_devices_are_shown_as_the_platform_does(platform: str | None, variable: str, device: str) -> None:
    thinker = of(three(), platform)["thinker"]
    assert (thinker.env, thinker.device) == ({variable: "0"}, device)


def test_environment_is_text() -> None:
    env = {"A": 1, "B": True, "C": False, "D": "x", "E": 0.5}
    assert dict(of(three(devices="cpu", env=env))["thinker"].env) == {
        "A": "1",
        "B": "1",
        "C": "0",
        "D": "x",
        "E": "0.5",
    }


def test_chunks_of_code2wav_are_those_of_its_connector() -> None:
    code2wav = engines(plan(QWEN).topology)[0]
    assert code2wav.args == ("--max-batch", "64", "--first-chunk", "4", "--chunk", "25", "--left-context", "25")
    assert "gpu_memory_utilization" in code2wav.unused
    assert engines(plan(TINY).topology)[0].args[:3] == ("--max-batch", "8", "--first-chunk")
    assert engines(plan(TINY).topology)[0].args[-2:] == ("--dtype", "float32")


def test_what_no_engine_is_told_is_named() -> None:
    values = {**four(kv("kv_producer", kv_buffer_size=1e9)), "model_runner": "v2", "async_chunk": False}
    values["stages"][0] |= {"worker_type": "ar", "default_pooling_params": {}}
    prefill = of(values)["prefill"]
    assert sorted(prefill.unused) == [
        "async_chunk",
        "default_pooling_params",
        "kv_transfer_config.kv_buffer_size",
        "model_runner",
        "worker_type",
    ]
    assert "kv_buffer_size" not in str(prefill.args)


def test_what_the_file_says_for_all_is_told_each_and_a_stage_beats_it() -> None:
    values = {**three(dtype="float16"), "dtype": "bfloat16", "model": "m", "served_model_name": "s", "revision": "r"}
    found = of(values)
    assert found["thinker"].args == ("--dtype", "float16")
    assert found["talker"].args == ("--dtype", "bfloat16")
    assert {(e.model, e.served_name, e.revision) for e in found.values()} == {("m", "s", "r")}


@pytest.mark.parametrize(
    ("name", "value", "args"),
    [
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enforce_eager", False, ["--no-enforce-eager"]),
        ("max_num_seqs", 64, ["--max-num-seqs", "64"]),
        ("hf_overrides", {"quantization_config": None}, ["--hf-overrides", '{"quantization_config": null}']),
        ("cudagraph_capture_sizes", [1, 2], ["--cudagraph-capture-sizes", "1", "2"]),
    ],
)
def test_flags(name: str, value: Any, args: list[str]) -> None:
    assert flag(name, value) == args


@with_vllm
@pytest.mark.parametrize(("file", "platform"), [(QWEN, "cuda"), (QWEN, "npu"), (QWEN, "musa"), (TINY, None)])
def test_vllm_reads_them_as_the_file_says(file: Path, platform: str | None) -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    it = plan(file, pd=True, platform=platform).topology
    parser = make_arg_parser(FlexibleArgumentParser())
    for engine in engines(it, platform=platform)[1:]:
        read = vars(parser.parse_args(list(engine.args)))
        settings = it.on(platform).stage(engine.stage).settings
        for name in settings.values:
            value = settings.get(name)
            if name in read and value is not None:
                assert plain(read[name], value) == value, name


def plain(read: Any, like: Any) -> Any:
    """What vLLM made of it, as much of it as the file said."""
    if isinstance(like, dict):
        return {
            name: plain(read[name] if isinstance(read, dict) else getattr(read, name), v) for name, v in like.items()
        }
    return getattr(read, "name", read) if isinstance(like, str) else read
