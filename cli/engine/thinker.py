"""`duet engine thinker`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.engine import options as o
from cli.errors import told
from common.connectors import DEFAULT
from common.engine import Role


def thinker(
    ctx: typer.Context,
    role: Annotated[o.Leg, typer.Option(help="Which legs it takes.")],
    model: Annotated[str, typer.Option(help="A folder, or a name that vLLM can load.")],
    port: o.PortOption = 8100,
    host: o.HostOption = "127.0.0.1",
    served_name: o.NameOption = None,
    connector: Annotated[str, typer.Option(help="KV connector; `none` for an engine outside a split.")] = DEFAULT,
    lease: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="How long prefill keeps KV that nobody fetched.")
    ] = None,
    side_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help=f"The connector's own port [the port + {o.SIDE_PORT_ABOVE}]."),
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(
            envvar="DUET_CHANNEL",
            metavar="auto|tcp://HOST:PORT|ipc:///PATH",
            help="Tells a Talker what is computed, there; auto: TCP on the port + "
            f"{o.CHANNEL_PORT_ABOVE}. Without it there is no speech.",
        ),
    ] = None,
    runner: Annotated[
        str, typer.Option(metavar="duet|stock", help="duet: models are told which rows are prompt. stock: plain vLLM.")
    ] = "duet",
    device: o.DeviceOption = "auto",
    dtype: o.DtypeOption = "auto",
    max_model_len: o.MaxModelLenOption = None,
    max_num_seqs: o.MaxNumSeqsOption = None,
    block_size: o.BlockSizeOption = None,
    kv_blocks: o.KvBlocksOption = None,
    api_key: o.ApiKeyOption = None,
    registry: o.RegistryOption = None,
    advertise: o.AdvertiseOption = None,
    log_requests: o.LogRequestsOption = False,
) -> None:
    """A vLLM engine that takes one leg of a split, both, or (`--connector none`) whole requests."""
    with told():
        o.require_vllm()
        from cli.engine.rules import require_sound
        from common.topology.pipelines import Kind
        from engines.thinker import EngineSpec, exec_thinker

        spec = EngineSpec(
            model=model,
            role=Role(role.value),
            port=port,
            host=host,
            served_name=served_name,
            connector=None if connector.lower() == "none" else connector,
            lease=lease,
            side_port=side_port or o.port_above(port, o.SIDE_PORT_ABOVE, "--side-port"),
            channel=None if channel is None else o.channel_at(channel, host, port),
            runner=o.runner_named(runner),
            device=o.device_named(device),
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            block_size=block_size,
            kv_blocks=kv_blocks,
            api_key=api_key,
            registry=registry,
            advertise=advertise,
            log_requests=log_requests,
            extra=tuple(ctx.args),
        )
        require_sound(Kind.THINKER, spec)
        exec_thinker(spec)
