"""`duet up`: model, Valkey, engines and gateway on this machine. What `make run` calls.

A Qwen3-Omni gets a Talker and a Code2Wav too, and its Thinkers tell the Talker what they compute.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from cli.engine.options import DeviceOption, DtypeOption, device_named, require_vllm
from cli.errors import told


def up(
    port: Annotated[int | None, typer.Option(help="The gateway's port; 0 takes a free one [8000].")] = None,
    host: Annotated[str | None, typer.Option(help="The gateway's address [127.0.0.1].")] = None,
    model: Annotated[
        str,
        typer.Option(
            help="smollm2 (real weights), tiny (random ones, fastest), omni-tiny (random ones, with speech), or a "
            "folder."
        ),
    ] = "smollm2",
    prefill: Annotated[int, typer.Option(min=1, max=8, help="Prefill engines.")] = 1,
    decode: Annotated[int, typer.Option(min=1, max=8, help="Decode engines.")] = 1,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="KV connector.")] = None,
    kv_lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    max_model_len: Annotated[int, typer.Option(min=1, help="Longest context in tokens.")] = 2048,
) -> None:
    """Start everything on this machine, and stay until Ctrl-C.

    The gateway takes its other settings from the environment, as `duet gateway` does. It has a Valkey of its own,
    whatever DUET_REDIS_URL says.
    """
    if os.environ.get("DUET_DIE_WITH_PARENT") == "1":
        from common.process import die_with_parent

        die_with_parent(os.getppid())
    flags = {"port": port, "host": host, "connector": connector, "kv_lease": kv_lease}
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    with told(given):
        require_vllm()
        from cli.local.model import Model
        from cli.local.plan import Plan
        from cli.local.supervise import run
        from gateway.settings import Settings

        plan = Plan.of(
            Settings(**given),
            Model.of(model),
            prefill=prefill,
            decode=decode,
            device=device_named(device),
            dtype=dtype,
            max_model_len=max_model_len,
        )
        raise typer.Exit(run(plan))
