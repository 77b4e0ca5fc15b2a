"""`duet up`: model, Valkey, engines and gateway on this machine. What `make run` calls.

A Qwen3-Omni gets a Talker and a Code2Wav too, and its Thinkers tell the Talker what they compute. What is started is
said by a few flags, or by a deploy file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.engine.options import device_named, require_vllm
from cli.errors import told
from cli.topology.command import PdOption, planned, refused
from common.errors import ConfigurationError

if TYPE_CHECKING:
    from cli.local.plan import Plan
    from gateway.settings import Settings

Count = Annotated[int | None, typer.Option(min=1, max=8, help="Engines of this role [1].")]
MODEL = "smollm2"
MAX_MODEL_LEN = 2048


def up(
    port: Annotated[int | None, typer.Option(help="The gateway's port; 0 takes a free one [8000].")] = None,
    host: Annotated[str | None, typer.Option(help="The gateway's address [127.0.0.1].")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="smollm2 (real weights), tiny (random ones, fastest), omni-tiny (random ones, with speech), or a "
            f"folder [{MODEL}, or the file's]."
        ),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Start what a deploy file says (docs/topology.md); goes with the next two."),
    ] = None,
    pd: PdOption = None,
    platform: Annotated[
        str | None, typer.Option(metavar="cpu|cuda", help="With what the file has for it [as the file stands].")
    ] = None,
    prefill: Count = None,
    decode: Count = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="KV connector.")] = None,
    kv_lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="auto|cpu|cuda", help="auto: a GPU if torch sees one [auto].")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto: the model's own, float32 on CPUs [auto].")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help=f"Longest context in tokens [{MAX_MODEL_LEN}].")
    ] = None,
) -> None:
    """Start everything on this machine, and stay until Ctrl-C.

    The gateway takes its other settings from the environment, as `duet gateway` does. It has a Valkey of its own,
    whatever DUET_REDIS_URL says.
    """
    if os.environ.get("DUET_DIE_WITH_PARENT") == "1":
        from common.process import die_with_parent

        die_with_parent(os.getppid())
    gateway = _given(port=port, host=host, connector=connector, kv_lease=kv_lease)
    engines = _given(prefill=prefill, decode=decode, device=device, dtype=dtype, max_model_len=max_model_len)
    with told(gateway):
        _require_one_source(topology, engines=[*gateway, *engines], file=_given(pd=pd, platform=platform))
        require_vllm()
        from cli.local.supervise import run
        from gateway.settings import Settings

        settings = Settings(**gateway)
        if topology is None:
            plan = _counted(settings, model or MODEL, **engines)
        else:
            plan = _of_file(settings, topology, model, pd, platform)
        raise typer.Exit(run(plan))


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _require_one_source(topology: Path | None, *, engines: list[str], file: dict[str, Any]) -> None:
    """Raises ConfigurationError for a flag that goes with the other way to say what is started."""
    engines = [name for name in engines if name not in ("port", "host")]
    for name in file if topology is None else engines:
        flag = f"--{name.replace('_', '-')}"
        if topology is None:
            raise ConfigurationError(f"{flag} is about a deploy file: expected --topology FILE beside it")
        raise ConfigurationError(f"{flag} and --topology are both set: expected it to be said in {topology} alone")


def _counted(
    settings: Settings,
    model: str,
    *,
    prefill: int = 1,
    decode: int = 1,
    device: str = "auto",
    dtype: str = "auto",
    max_model_len: int = MAX_MODEL_LEN,
) -> Plan:
    from cli.local.model import Model
    from cli.local.plan import Plan

    return Plan.of(
        settings,
        Model.of(model),
        prefill=prefill,
        decode=decode,
        device=device_named(device),
        dtype=dtype,
        max_model_len=max_model_len,
    )


def _of_file(settings: Settings, file: Path, model: str | None, pd: bool | None, platform: str | None) -> Plan:
    with refused(file, as_json=False):
        from cli.local.from_file import plan_of

        topology = planned(file, pd, platform).topology
        return plan_of(topology, settings, model=model, platform=platform)
