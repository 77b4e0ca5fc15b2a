"""`duet engine talker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.engine import options as o
from cli.errors import told
from common.engine import Role


def talker(
    ctx: typer.Context,
    model: o.FolderOption,
    port: o.PortOption = 8300,
    host: o.HostOption = "127.0.0.1",
    served_name: o.PairNameOption = None,
    channel: Annotated[
        str,
        typer.Option(
            envvar="DUET_CHANNEL",
            metavar="auto|tcp://HOST:PORT|ipc:///PATH",
            help=f"Where Code2Wav pulls codes from; auto: TCP on the port + {o.CHANNEL_PORT_ABOVE}.",
        ),
    ] = o.AUTO,
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
    """The Talker of a Qwen3-Omni: speaks what Thinkers tell it, as codes.

    Its weights are taken out of the whole model's folder once, and kept in the cache.
    """
    with told():
        o.require_vllm()
        from cli.engine.rules import require_sound
        from common.topology.pipelines import Kind
        from engines.talker.launch import exec_talker
        from engines.thinker import EngineSpec

        at = o.channel_at(channel, host, port)
        spec = EngineSpec(
            model=str(_folder(model)),
            role=Role.BOTH,
            port=port,
            host=host,
            served_name=served_name or model.resolve().name,
            connector=None,
            channel=at,
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
        require_sound(Kind.TALKER, spec)
        exec_talker(spec)


def _folder(model: Path) -> Path:
    """The Talker's own folder, made if it is not there. Raises ConfigurationError for a model without one."""
    from engines.models import made_once
    from engines.talker import make_talker, talker_folder

    o.require_part(model, "talker_config", "thinker_vocab_size")
    folder = talker_folder(model)
    if folder.exists():
        return folder
    typer.echo(f"taking the Talker out of {model}, into {folder}", err=True)
    return made_once(folder, lambda draft: make_talker(model, draft))
