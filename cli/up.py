"""`duet up`: model, Valkey, engines and gateway on this machine. What `make run` calls."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cli.errors import told
from common.connectors import DEFAULT


def up(
    port: Annotated[int, typer.Option(envvar="PORT", help="The gateway's port.")] = 8000,
    host: Annotated[str, typer.Option(help="The gateway's address.")] = "127.0.0.1",
    model: Annotated[
        str, typer.Option(envvar="MODEL", help="smollm2 (real weights), tiny (random ones, fastest), or a folder.")
    ] = "smollm2",
    prefill: Annotated[int, typer.Option(min=1, max=8, help="Prefill engines.")] = 1,
    decode: Annotated[int, typer.Option(min=1, max=8, help="Decode engines.")] = 1,
    connector: Annotated[str, typer.Option(help="KV connector.")] = DEFAULT,
    dtype: Annotated[str, typer.Option(help="auto: the model's own, float32 on CPUs.")] = "auto",
    max_model_len: Annotated[int, typer.Option(help="Longest context in tokens.")] = 2048,
) -> None:
    """Start everything on this machine, and stay until Ctrl-C."""
    with told():
        from cli.local.plan import Plan
        from cli.local.supervise import run
        from common.process import die_with_parent

        if os.environ.get("DUET_DIE_WITH_PARENT") == "1":
            die_with_parent(os.getppid())
        plan = Plan(
            model=model,
            host=host,
            port=port,
            prefill=prefill,
            decode=decode,
            connector=connector,
            dtype=dtype,
            max_model_len=max_model_len,
        )
        raise typer.Exit(run(plan))
