"""A deploy file as what `duet up` starts: the same engines as `duet up --model` gives, where the file says the same."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from cli.local import from_file
from cli.local.engines import LocalEngine, Stage
from cli.local.from_file import plan_of
from cli.local.model import Model
from cli.local.plan import Plan
from cli.topology.command import planned
from common.errors import ConfigurationError
from common.topology.flags import settings_of
from gateway.settings import Settings
from tests.unit.topology.files import TINY, written

ROWS = Path("/rows")
OMNI = '{"talker_config": {}, "code2wav_config": {}}'


def plan(file: Path, *, model: str | None = None, platform: str | None = None, **settings: Any) -> Plan:
    it = plan_of(planned(file, None, platform).topology, Settings(**settings), model=model, platform=platform)
    for one in it.models:
        one.directory.mkdir(parents=True, exist_ok=True)
        (one.directory / "config.json").write_text(OMNI)
    return it


def engines(it: Plan) -> dict[str, LocalEngine]:
    return {engine.name: engine for engine in it.engines(ROWS)}


@pytest.fixture
def omni(tmp_path: Path) -> Path:
    folder = tmp_path / "omni"
    folder.mkdir()
    (folder / "config.json").write_text(OMNI)
    return folder


def file(tmp_path: Path, model: Path | str, thinker: dict[str, Any] | None = None, **top: Any) -> Path:
    """None takes a setting of the Thinker's away."""
    stages = [{"stage_id": 0, "devices": "cpu", "pd": {}, **(thinker or {})}]
    stages = [{name: value for name, value in stages[0].items() if value is not None}]
    stages += [{"stage_id": 1, "devices": "cpu"}, {"stage_id": 2, "devices": "cpu"}]
    return written(tmp_path, {"model": str(model), **top, "stages": stages})


def test_it_starts_what_duet_up_starts_of_a_model() -> None:
    """Beside what the file says more: one way to a command line for both."""
    of_file = plan(TINY)
    of_model = Plan.of(
        Settings(kv_lease=30),
        Model.of("omni-tiny"),
        prefill=1,
        decode=1,
        device="cpu",
        dtype="auto",
        max_model_len=2048,
    )
    assert of_file.models == of_model.models
    for mine, theirs in ((f, f"{f}-1" if f in ("prefill", "decode") else f) for f in engines(of_file)):
        a, b = engines(of_file)[mine], engines(of_model)[theirs]
        assert (a.stage, a.command[:4]) == (b.stage, b.command[:4])
        apart = ("VLLM_NIXL_SIDE_CHANNEL_PORT", "DUET_CHANNEL")
        assert {n: v for n, v in a.env.items() if n not in apart} == {n: v for n, v in b.env.items() if n not in apart}
        told, lacking = settings_of(a.command), settings_of(b.command)
        assert told["port"] != lacking.pop("port")
        assert told | lacking == told


def test_who_is_fed_is_started_first_and_all_are_named_to_the_gateway() -> None:
    it = plan(TINY, port=8123)
    assert it.engine_names == list(engines(it)) == ["code2wav", "talker", "decode", "prefill"]
    started = it.engines(ROWS)
    assert [engine.stage for engine in started] == [Stage.CODE2WAV, Stage.TALKER, Stage.DECODE, Stage.PREFILL]
    command = it.gateway(started, "unix:///v")
    given = list(zip(command[4::2], command[5::2], strict=True))
    assert given[2:5] == [("--connector", "NixlConnector"), ("--redis-url", "unix:///v"), ("--kv-lease", "30")]
    assert given[5:] == [(f"--{engine.stage}", engine.told) for engine in started]


def test_every_engine_has_ports_of_its_own() -> None:
    found = engines(plan(TINY)).values()
    ports = [engine.url.rsplit(":", 1)[1] for engine in found]
    sides = [port for engine in found if (port := engine.env.get("VLLM_NIXL_SIDE_CHANNEL_PORT"))]
    assert (len(ports), len(sides), len({*ports, *sides})) == (4, 2, 6)


def test_a_model_of_the_command_line_stands_for_the_files(omni: Path) -> None:
    it = plan(TINY, model=str(omni))
    assert (it.model.name, [one.directory for one in it.models]) == ("omni", [omni])


def test_the_served_name_is_that_of_the_file(tmp_path: Path, omni: Path) -> None:
    it = plan(file(tmp_path, omni, served_model_name="m"))
    assert it.model.name == "m"
    for engine in engines(it).values():
        told = settings_of(engine.command)
        assert told.get("served_model_name", told.get("served_name")) == "m"


def test_what_the_file_sets_wins(tmp_path: Path, omni: Path) -> None:
    thinker = {
        "block_size": 64,
        "env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.2"},
        "default_sampling_params": {"top_p": 0.5, "max_tokens": 9},
        "override_generation_config": {"top_k": 7},
        "pd": {"decode": {"port": 18471, "side_port": 18472}},
    }
    it = plan(file(tmp_path, omni, thinker))
    decode = engines(it)["decode"]
    told = settings_of(decode.command)
    assert (told["block_size"], told["port"]) == (64, 18471)
    assert told["override_generation_config"] == {"top_p": 0.5, "top_k": 7}
    assert (decode.url, decode.env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) == ("http://127.0.0.1:18471", "18472")
    assert decode.env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "127.0.0.2"
    assert it.notes == (
        "decode is not told default_sampling_params.max_tokens",
        "prefill is not told default_sampling_params.max_tokens",
    )


def test_the_talkers_own_defaults_are_nothing_lost(tmp_path: Path, omni: Path) -> None:
    assert plan(TINY).notes == ()
    values = json.loads(json.dumps({"seed": 42, "temperature": 0.5}))
    path = file(tmp_path, omni)
    path.write_text(path.read_text().replace("stage_id: 1", f"stage_id: 1\n  default_sampling_params: {values}"))
    assert plan(path).notes == ("talker is not told default_sampling_params.temperature",)


def test_a_connectors_own_variable_is_its_port(tmp_path: Path, omni: Path) -> None:
    thinker = {"pd": {"connector": "mooncake", "prefill": {"env": {"VLLM_MOONCAKE_BOOTSTRAP_PORT": "18998"}}}}
    prefill = engines(plan(file(tmp_path, omni, thinker)))["prefill"]
    assert prefill.told.endswith("?bootstrap_port=18998")


def test_engines_of_one_device_start_one_after_the_other(
    tmp_path: Path, omni: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each measures what is free on it."""
    monkeypatch.setattr(from_file, "device_of", lambda spec: "cuda")
    share = {"gpu_memory_utilization": 0.3}
    stages = [
        {"stage_id": 0, "devices": "0", "pd": {"decode": {"devices": "1,2", "num_replicas": 2}}, **share},
        {"stage_id": 1, "devices": "1", **share},
        {"stage_id": 2, "devices": "1", **share},
    ]
    it = plan(written(tmp_path, {"model": str(omni), "stages": stages}))
    after = {engine.name: list(engine.after) for engine in it.engines(ROWS)}
    assert after == {
        "code2wav": [],
        "talker": ["code2wav"],
        "decode-1": ["code2wav", "talker"],
        "decode-2": [],
        "prefill": [],
    }
    assert engines(it)["decode-2"].env["CUDA_VISIBLE_DEVICES"] == "2"


def test_what_cannot_be_started_here(tmp_path: Path, omni: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_file, "device_of", lambda spec: "cpu")
    on_gpu = {"devices": "0", "pd": {"decode": {"devices": "1"}}}
    for model, thinker, said in (
        ("no-such-model", {}, r"t\.yaml: model 'no-such-model': expected omni-tiny"),
        ("tiny", {}, r"t\.yaml: model 'tiny': config\.json has no talker_config"),
        (omni, {"pd": None}, "the Thinker is not split; expected prefill and decode"),
        (omni, {"served_model_name": "a"}, "served_model_name differs: a, b; expected one"),
        (omni, on_gpu, r"decode, prefill run on GPUs, and torch sees none here: set devices: cpu"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            plan(file(tmp_path, model, thinker, served_model_name="b"))


def test_a_platform_that_duet_starts_nothing_on(tmp_path: Path, omni: Path) -> None:
    path = file(tmp_path, omni, {"devices": "0", "pd": {"decode": {"devices": "1"}}})
    with pytest.raises(ConfigurationError, match="decode is for npu; expected cpu or cuda"):
        plan(path, platform="npu")


def test_a_file_without_a_model(tmp_path: Path) -> None:
    path = written(tmp_path, file(tmp_path, "x").read_text().replace("model: x\n", ""))
    with pytest.raises(ConfigurationError, match="code2wav has no model: add model: to the file, or give --model"):
        plan(path)


def test_a_port_that_is_taken(tmp_path: Path, omni: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"decode: port {port} on 127\.0\.0\.1 cannot be used"):
            plan(file(tmp_path, omni, {"pd": {"decode": {"port": port}}}))


def test_a_port_that_is_the_gateways(tmp_path: Path, omni: Path) -> None:
    found = file(tmp_path, omni, {"pd": {"decode": {"port": 8123}}})
    with pytest.raises(ConfigurationError, match=r"decode: port 8123 is the gateway's; expected another one, or none"):
        plan(found, port=8123)
