"""What the flags of all engines have in common, and what they mean."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.errors import ConfigurationError

if TYPE_CHECKING:
    from engines.thinker.spec import Device, Runner

SIDE_PORT_ABOVE = 1000
CHANNEL_PORT_ABOVE = 2000
AUTO = "auto"
TO_VLLM: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True},
    "options_metavar": "[OPTIONS] [-- VLLM ARGUMENTS]",
    "epilog": "What stands after -- goes to vLLM as it is, and wins over what is set here. "
    "So does what the environment sets for vLLM.",
}
"""Of commands that become vLLM."""


class Leg(StrEnum):
    """The roles that a Thinker can have."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


PortOption = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
FolderOption = Annotated[Path, typer.Option(help="The folder of a whole Qwen3-Omni.")]
PairNameOption = Annotated[
    str | None, typer.Option(help="The model's name, the same as of its Thinkers [the folder's name].")
]
HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
NameOption = Annotated[str | None, typer.Option(help="The model's name for clients.")]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="auto: a GPU if torch sees one.")]
DtypeOption = Annotated[str, typer.Option(help="auto: the model's own, float32 on CPUs.")]
MaxModelLenOption = Annotated[int | None, typer.Option(min=1, help="Longest context in tokens.")]
MaxNumSeqsOption = Annotated[int | None, typer.Option(min=1, help="Requests in one batch.")]
BlockSizeOption = Annotated[int | None, typer.Option(min=1, help="Tokens in one KV block.")]
KvBlocksOption = Annotated[int | None, typer.Option(min=1, help="KV blocks in all.")]
ApiKeyOption = Annotated[str | None, typer.Option(envvar="DUET_ENGINE_API_KEY", help="Key that the gateway must send.")]
RegistryOption = Annotated[
    str | None,
    typer.Option(
        envvar="DUET_REGISTRY_URL", metavar="URL", help="Redis in which the engine announces itself to gateways."
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        envvar="DUET_ADVERTISE", metavar="URL", help="Where gateways reach it, if announced [--host and --port]."
    ),
]
LogRequestsOption = Annotated[bool, typer.Option(help="Log each request.")]


def require_vllm() -> None:
    """Raises ConfigurationError where there is none: better than half a minute later, out of an engine's log."""
    _require("vllm", "vLLM")


def require_torch() -> None:
    """The same for an engine that is not vLLM's."""
    _require("torch", "torch")


def _require(package: str, name: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise ConfigurationError(f"{name} is not installed: install duet[engine-cpu] or duet[engine-gpu]")


def require_part(model: Path, *parts: str) -> None:
    """Raises ConfigurationError unless the folder's config has one of `parts`."""
    path = model / "config.json"
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise ConfigurationError(f"--model {str(model)!r}: {path} cannot be read: {e}") from None
    if not isinstance(config, dict) or not any(part in config for part in parts):
        raise ConfigurationError(
            f"--model {str(model)!r}: config.json has no {parts[0]}: expected a Qwen3-Omni's folder"
        )


def device_named(name: str) -> Device:
    match name:
        case "auto" | "cpu" | "cuda":
            return name
    raise ConfigurationError(f"--device {name!r}: expected auto, cpu or cuda")


def runner_named(name: str) -> Runner:
    match name:
        case "duet" | "stock":
            return name
    raise ConfigurationError(f"--runner {name!r}: expected duet or stock")


def port_above(port: int, by: int, flag: str) -> int:
    """The port that `flag` has if it is not given. Raises ConfigurationError where that is none."""
    if port + by > 65535:
        raise ConfigurationError(f"{flag} is needed: --port {port} + {by} is no port")
    return port + by


def channel_at(channel: str, host: str, port: int) -> str:
    """The endpoint that `--channel` names, `auto` from where the engine listens. Raises ConfigurationError."""
    from common.channel.errors import ChannelError
    from common.channel.reference import check_endpoint
    from engines.thinker.address import reached_at

    if channel == AUTO:
        at = reached_at(host)
        return f"tcp://{f'[{at}]' if ':' in at else at}:{port_above(port, CHANNEL_PORT_ABOVE, '--channel')}"
    try:
        check_endpoint(channel)
    except ChannelError as e:
        raise ConfigurationError(f"--channel: {e.message}, or {AUTO}") from None
    return channel
