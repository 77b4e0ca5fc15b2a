from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cli.local.engines import LocalEngine
from cli.local.hello import hello
from cli.local.model import Model
from cli.local.plan import Plan
from common import scratch
from common.errors import ConfigurationError
from gateway.settings import Settings


def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def plan(model: str = "tiny", *, prefill: int = 1, decode: int = 1, **settings: Any) -> Plan:
    return Plan.of(
        Settings(**settings),
        Model.of(model),
        prefill=prefill,
        decode=decode,
        device="cpu",
        dtype="auto",
        max_model_len=512,
    )


def test_a_model_that_is_made_here(tmp_path: Path) -> None:
    model = Model.of("tiny")
    assert model.name == "tiny"
    assert model.directory.parent == tmp_path / "cache"
    make = model.make()
    assert make is not None
    assert make[1:] == ["-m", "engines.tiny", str(model.directory)]
    model.directory.mkdir(parents=True)
    assert model.make() is None


def test_a_folder_is_a_model_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path)
    assert Model.of(str(folder)) == Model("my-model", folder, None, speaks=False)
    assert Model.of(str(folder)).make() is None
    monkeypatch.chdir(folder)
    assert Model.of(".").name == "my-model"


@pytest.mark.parametrize("name", ["tinny", "/no/such/folder", ""])
def test_a_model_that_is_neither(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected omni-tiny, smollm2, tiny, or a folder with a config\.json"):
        Model.of(name)


def flag(engine: LocalEngine, name: str) -> str:
    return engine.command[list(engine.command).index(name) + 1]


ROWS = Path("/rows")


def test_an_engine_for_each_role_on_ports_of_their_own() -> None:
    two_and_one = plan(prefill=2, decode=1, kv_lease=12.0, engine_api_key="e")
    engines = two_and_one.engines(ROWS)
    names = ["prefill-1", "prefill-2", "decode-1"]
    assert [engine.name for engine in engines] == names == two_and_one.engine_names
    assert [engine.env["DUET_ENGINE_ROLE"] for engine in engines] == ["prefill", "prefill", "decode"]
    ports = [(flag(engine, "--port"), engine.env["VLLM_NIXL_SIDE_CHANNEL_PORT"]) for engine in engines]
    assert len({port for pair in ports for port in pair}) == 6
    for engine in engines:
        assert flag(engine, "--model") == str(two_and_one.model.directory)
        assert flag(engine, "--served-model-name") == "tiny"
        assert flag(engine, "--max-model-len") == "512"
        kv = json.loads(flag(engine, "--kv-transfer-config"))
        assert (kv["kv_connector"], kv["kv_connector_extra_config"]["kv_lease_duration"]) == ("NixlConnector", 12.0)
        assert engine.env["VLLM_API_KEY"] == "e"
        assert "DUET_CHANNEL" not in engine.env
        assert engine.url == f"http://127.0.0.1:{flag(engine, '--port')}"


def test_what_engines_leave_behind_is_in_the_folder_of_the_run(omni: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what torch has compiled, which is for the next start too."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/temporary")
    monkeypatch.setenv("LOGNAME", "me")
    engines = plan(str(omni)).engines(ROWS)
    assert len(engines) == 4
    for engine in engines:
        assert (engine.env["TMPDIR"], engine.env["VLLM_RPC_BASE_PATH"]) == ("/rows", "/rows")
        assert engine.env["TORCHINDUCTOR_CACHE_DIR"] == "/temporary/torchinductor_me"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/compiled")
    assert plan().engines(ROWS)[0].env["TORCHINDUCTOR_CACHE_DIR"] == "/compiled"


def test_the_folder_of_a_run_has_room_for_a_sockets_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = Path(tempfile.mkdtemp(prefix="t-"))
    deep = tmp_path / ("x" * 60) / ("y" * 60)
    deep.mkdir(parents=True)
    for inside, parent in ((short, short), (deep, Path("/tmp"))):
        monkeypatch.setattr(tempfile, "tempdir", str(inside))
        made = scratch.make("duet-up-")
        try:
            assert made.parent == parent
            assert len(f"{made}/{uuid4()}") <= 107
        finally:
            made.rmdir()
    short.rmdir()


@pytest.fixture
def omni(tmp_path: Path) -> Path:
    folder = tmp_path / "omni"
    folder.mkdir()
    (folder / "config.json").write_text('{"talker_config": {}, "code2wav_config": {}}')
    return folder


def test_a_model_that_speaks_has_a_talker_and_a_code2wav(omni: Path) -> None:
    it = plan(str(omni), engine_api_key="e")
    engines = {engine.name: engine for engine in it.engines(ROWS)}
    assert list(engines) == ["prefill-1", "decode-1", "talker", "code2wav"] == it.engine_names
    channels = {name: engine.env.get("DUET_CHANNEL") for name, engine in engines.items()}
    publishing = ("prefill-1", "decode-1", "talker")
    assert channels == {name: f"ipc:///rows/{name}" for name in publishing} | {"code2wav": None}
    for name in ("prefill-1", "decode-1"):
        assert flag(engines[name], "--worker-cls") == "engines.thinker.conditioning.cpu.ThinkerCPUWorker"
        assert "--no-async-scheduling" in engines[name].command
    talker, code2wav = engines["talker"], engines["code2wav"]
    assert flag(talker, "--model") == str(it.model.talker)
    assert flag(talker, "--served-model-name") == flag(code2wav, "--served-name") == "omni"
    assert "--kv-transfer-config" not in talker.command
    assert list(code2wav.command[1:4]) == ["-m", "engines.code2wav", str(omni)]
    assert talker.env["VLLM_API_KEY"] == code2wav.env["DUET_ENGINE_API_KEY"] == "e"
    assert "e" not in (*talker.command, *code2wav.command)
    command = it.gateway(list(engines.values()), "unix:///v.sock")
    given = list(zip(command[4::2], command[5::2], strict=True))
    assert given[-2:] == [("--talkers", talker.url), ("--code2wavs", code2wav.url)]


def test_the_talker_is_taken_out_of_the_model_once(omni: Path, tmp_path: Path) -> None:
    model = Model.of(str(omni))
    make = model.make_talker()
    assert make is not None
    assert make[1:] == ["-m", "engines.talker", str(omni), str(model.talker)]
    assert model.talker.parent == tmp_path / "cache"
    first = model.talker
    (omni / "model.safetensors").write_bytes(b"other weights")
    assert model.talker != first
    model.talker.mkdir()
    assert model.make_talker() is None


def test_the_tiny_omni_is_made_with_all_its_parts() -> None:
    model = Model.of("omni-tiny")
    make = model.make()
    assert make is not None
    assert make[1:] == ["-m", "engines.tiny", "omni", str(model.directory)]
    assert model.speaks
    assert not Model.of("tiny").speaks


def test_the_gateway_is_told_what_the_engines_were_told_and_no_key() -> None:
    it = plan(prefill=2, port=8123, kv_lease=12.0, api_key="client-key", engine_api_key="engine-key")
    engines = it.engines(ROWS)
    command = it.gateway(engines, "unix:///v.sock")
    assert command[1:4] == ["-m", "cli.main", "gateway"]
    given = list(zip(command[4::2], command[5::2], strict=True))
    assert given == [
        ("--host", "127.0.0.1"),
        ("--port", "8123"),
        ("--connector", "NixlConnector"),
        ("--redis-url", "unix:///v.sock"),
        ("--kv-lease", "12.0"),
        ("--prefill", engines[0].url),
        ("--prefill", engines[1].url),
        ("--decode", engines[2].url),
    ]
    assert not any("key" in part for part in command)


def test_a_connector_that_is_not_known_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="connector 'carrier-pigeon' is not known"):
        plan(connector="carrier-pigeon")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("example.org", "http://example.org:8000"),
    ],
)
def test_where_the_gateway_is_reached_from_here(host: str, url: str) -> None:
    assert plan(host=host).url == url


def test_port_0_is_a_free_one() -> None:
    assert plan(port=0).port > 0


@pytest.mark.parametrize("keyed", [False, True])
def test_what_is_printed_can_be_pasted(keyed: bool) -> None:
    text = hello("http://127.0.0.1:8000", Model.of("tiny"), Path("/logs"), keyed=keyed)
    assert "-o answer.wav" not in text
    assert "-o answer.wav" in hello("http://127.0.0.1:8000", Model.of("omni-tiny"), Path("/logs"), keyed=keyed)
    curl = shlex.split(text[text.index("curl") : text.index("In Python")])
    assert curl[:3] == ["curl", "-N", "http://127.0.0.1:8000/v1/chat/completions"]
    assert ("authorization: Bearer $DUET_API_KEY" in curl) is keyed
    body = json.loads(curl[curl.index("-d") + 1])
    assert (body["model"], body["stream"]) == ("tiny", True)
    snippet = text[text.index("import os" if keyed else "from openai") : text.index("Or: duet say")]
    compile(snippet, "snippet", "exec")
    assert ('os.environ["DUET_API_KEY"]' in snippet) is keyed
    for part in ("http://127.0.0.1:8000/admin/topology", "http://127.0.0.1:8000/admin/requests", "/logs"):
        assert part in text
