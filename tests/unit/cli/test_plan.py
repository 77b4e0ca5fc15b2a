from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.local.hello import hello
from cli.local.model import Model
from cli.local.plan import Plan
from common.engine import Role
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
    assert Model.of(str(folder)) == Model("my-model", folder, None)
    assert Model.of(str(folder)).make() is None
    monkeypatch.chdir(folder)
    assert Model.of(".").name == "my-model"


@pytest.mark.parametrize("name", ["tinny", "/no/such/folder", ""])
def test_a_model_that_is_neither(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected smollm2 or tiny, or a folder with a config\.json"):
        Model.of(name)


def test_an_engine_for_each_role_on_ports_of_their_own() -> None:
    two_and_one = plan(prefill=2, decode=1, kv_lease=12.0, engine_api_key="e")
    specs = two_and_one.engines()
    assert two_and_one.engine_names == ["prefill-1", "prefill-2", "decode-1"]
    assert [spec.role for spec in specs] == [Role.PREFILL, Role.PREFILL, Role.DECODE]
    ports = [port for spec in specs for port in (spec.port, spec.side_port)]
    assert len(set(ports)) == 6
    for spec in specs:
        assert spec.model == str(two_and_one.model.directory)
        assert (spec.served_name, spec.device, spec.max_model_len) == ("tiny", "cpu", 512)
        assert (spec.connector, spec.lease, spec.api_key) == ("NixlConnector", 12.0, "e")


def test_the_gateway_is_told_what_the_engines_were_told_and_no_key() -> None:
    it = plan(prefill=2, port=8123, kv_lease=12.0, api_key="client-key", engine_api_key="engine-key")
    specs = it.engines()
    command = it.gateway(specs, "unix:///v.sock")
    assert command[1:4] == ["-m", "cli.main", "gateway"]
    given = list(zip(command[4::2], command[5::2], strict=True))
    assert given == [
        ("--host", "127.0.0.1"),
        ("--port", "8123"),
        ("--connector", "NixlConnector"),
        ("--redis-url", "unix:///v.sock"),
        ("--kv-lease", "12.0"),
        ("--prefill", f"http://127.0.0.1:{specs[0].port}"),
        ("--prefill", f"http://127.0.0.1:{specs[1].port}"),
        ("--decode", f"http://127.0.0.1:{specs[2].port}"),
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
    text = hello("http://127.0.0.1:8000", "tiny", Path("/logs"), keyed=keyed)
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
