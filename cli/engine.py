"""`duet engine`: one engine, in this process's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import told
from common.connectors import DEFAULT
from common.engine import Role

if TYPE_CHECKING:
    from engines.thinker.spec import Device

app = typer.Typer(help="Run one engine.", no_args_is_help=True)


@app.callback()
def engine() -> None:
    """Run one engine."""


@app.command(
    "thinker",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Arguments that are not listed here go to vLLM as they are, and win over what is set here.",
)
def thinker(
    ctx: typer.Context,
    role: Annotated[Role, typer.Option(help="Which leg it takes.")],
    model: Annotated[str, typer.Option(help="A folder, or a name that vLLM can load.")],
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8100,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    served_name: Annotated[str | None, typer.Option(help="The model's name for clients.")] = None,
    connector: Annotated[str, typer.Option(help="KV connector; `none` for an engine outside a split.")] = DEFAULT,
    lease: Annotated[float | None, typer.Option(help="Seconds that prefill keeps KV nobody fetched.")] = None,
    side_port: Annotated[int | None, typer.Option(help="The connector's own port (the port plus 1000).")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto: the model's own, float32 on CPUs.")] = "auto",
    max_model_len: Annotated[int | None, typer.Option(help="Longest context in tokens.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="Requests in one batch.")] = None,
    block_size: Annotated[int | None, typer.Option(help="Tokens in one KV block.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(help="KV blocks in all.")] = None,
    log_requests: Annotated[bool, typer.Option(help="Log each request.")] = False,
) -> None:
    """A vLLM engine that takes one leg of a split, or (`--connector none`) whole requests."""
    with told():
        from engines.thinker import EngineSpec, exec_thinker

        exec_thinker(
            EngineSpec(
                model=model,
                role=role,
                port=port,
                host=host,
                served_name=served_name,
                connector=None if connector.lower() == "none" else connector,
                lease=lease,
                side_port=side_port if side_port is not None else port + 1000,
                device=_device(device),
                dtype=dtype,
                max_model_len=max_model_len,
                max_num_seqs=max_num_seqs,
                block_size=block_size,
                kv_blocks=kv_blocks,
                log_requests=log_requests,
                extra=tuple(ctx.args),
            )
        )


def _device(name: str) -> Device:
    from common.errors import ConfigurationError

    match name:
        case "auto" | "cpu" | "cuda":
            return name
    raise ConfigurationError(f"--device {name!r}: expected auto, cpu or cuda")
