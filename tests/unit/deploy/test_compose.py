"""`deploy/compose.yaml` and `deploy/nginx.conf`, as far as they can be checked without a Docker engine: commands are
commands, settings are settings, and the two files and the Dockerfile speak of the same things."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.main import app
from gateway.settings import Settings

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
GATEWAYS = sorted(name for name, service in OURS.items() if service["command"][0] == "gateway")
DOCKERFILE = (ROOT / "Dockerfile").read_text()
NGINX = (ROOT / "deploy" / "nginx.conf").read_text()


def parsed(words: list[str]) -> Any:
    """The context that our command line makes of words, without running the command. Raises click's UsageError."""
    command: Any = typer.main.get_command(app)
    context = None
    while hasattr(command, "get_command"):
        context = command.context_class(command, parent=context, info_name=command.name)
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"there is no command {name}"
    return command.make_context(command.name, list(words), parent=context)


def test_there_are_two_gateways_and_both_sides_of_a_split() -> None:
    assert GATEWAYS == ["gateway-1", "gateway-2"]
    roles = [parsed(OURS[name]["command"]).params["role"] for name in ("prefill", "decode")]
    assert [role.value for role in roles] == ["prefill", "decode"]


@pytest.mark.parametrize("name", OURS)
def test_each_command_is_one_and_each_variable_is_read(name: str) -> None:
    context = parsed(OURS[name]["command"])
    settings = {f"DUET_{field.upper()}" for field in Settings.model_fields}
    flags = {parameter.envvar for parameter in context.command.params if parameter.envvar}
    read = settings if name in GATEWAYS else flags
    asked = {variable for variable in OURS[name]["environment"] if variable.startswith("DUET_")}
    assert asked - read == set()
    assert not context.params.get("prefill"), "engines are found, not named"


def test_gateways_and_engines_mean_the_same_redis_which_is_there() -> None:
    urls = {s["environment"].get("DUET_REDIS_URL") or s["environment"]["DUET_REGISTRY_URL"] for s in OURS.values()}
    (url,) = urls
    assert url.split("/")[2].split(":")[0] in SERVICES
    for name in GATEWAYS:
        assert parsed(OURS[name]["command"]).params["registry"] is True


def test_engines_are_reached_from_outside_their_container() -> None:
    for name in set(OURS) - set(GATEWAYS):
        assert parsed(OURS[name]["command"]).params["host"] == "0.0.0.0"


def test_what_a_service_waits_for_is_there_and_can_be_waited_for() -> None:
    for service in SERVICES.values():
        for name in (waits := service.get("depends_on", [])):
            assert name in SERVICES
            if isinstance(waits, dict) and waits[name]["condition"] == "service_healthy":
                assert "test" in SERVICES[name]["healthcheck"]


def test_images_are_built_of_what_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for service in OURS.values():
        assert (FILE.parent / service["build"]["context"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
        for name, value in service["build"].get("args", {}).items():
            assert f"ARG {name}=" in DOCKERFILE
            assert set(value.split(",")) <= set(extras)


def test_the_balancer_is_told_of_each_gateway_by_the_names_in_its_configuration() -> None:
    balancer = SERVICES["balancer"]
    told = balancer["environment"]
    assert set(re.findall(r"\$\{(\w+)\}", NGINX)) == set(told)
    (port,) = re.findall(r"DUET_PORT=(\d+)", DOCKERFILE)
    assert sorted(at for name, at in told.items() if "GATEWAY" in name) == [f"{name}:{port}" for name in GATEWAYS]
    source, _, _ = balancer["volumes"][0].partition(":")
    assert (FILE.parent / source).resolve() == ROOT / "deploy" / "nginx.conf"


@pytest.mark.parametrize(
    "line",
    [
        "proxy_buffering off;",
        'proxy_set_header Connection "";',
        "proxy_http_version 1.1;",
        "proxy_ignore_client_abort off;",
        "proxy_next_upstream error timeout;",
    ],
)
def test_the_balancer_passes_streams_on_and_repeats_nothing(line: str) -> None:
    assert line in NGINX
    active = "\n".join(text for text in NGINX.splitlines() if not text.lstrip().startswith("#"))
    assert not re.search(r"ip_hash|sticky|hash |non_idempotent", active)


def test_the_balancer_is_more_patient_than_any_gateway() -> None:
    (read,) = re.findall(r"proxy_read_timeout (\d+)s;", NGINX)
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    leg = settings.prefill_timeout + settings.unary_timeout + 2 * settings.connect_timeout
    longest = settings.max_attempts * leg
    assert f"{longest:.0f} s" in NGINX
    assert int(read) > 1.2 * longest
    (size,) = re.findall(r"client_max_body_size (\d+)m;", NGINX)
    assert int(size) * 2**20 > settings.max_body_bytes


def test_operators_orders_outlive_a_restart_of_valkey() -> None:
    valkey = SERVICES["valkey"]
    assert valkey["command"][valkey["command"].index("--appendonly") + 1] == "yes"
    (name, at) = valkey["volumes"][0].split(":")
    assert at == "/data"
    assert name in yaml.safe_load(FILE.read_text())["volumes"]
