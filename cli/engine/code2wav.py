"""`duet engine code2wav`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.engine import options as o
from cli.errors import told


def code2wav(
    model: o.FolderOption,
    port: o.PortOption = 8400,
    host: o.HostOption = "127.0.0.1",
    served_name: o.PairNameOption = None,
    device: o.DeviceOption = "auto",
    dtype: Annotated[
        str, typer.Option(metavar="auto|float32|bfloat16", help="auto: float32 on CPUs, bfloat16 on a GPU.")
    ] = "auto",
    first_chunk: Annotated[int | None, typer.Option(min=1, help="Frames of 80 ms before the first sound [4].")] = None,
    chunk: Annotated[int | None, typer.Option(min=1, help="Frames of each chunk after it [25].")] = None,
    left_context: Annotated[
        int | None,
        typer.Option(
            min=1, help="Frames that are decoded again before each chunk [25]; docs/speech.md says what more do."
        ),
    ] = None,
    max_batch: Annotated[int | None, typer.Option(min=1, help="Chunks of all requests in one batch [16].")] = None,
    api_key: o.ApiKeyOption = None,
    registry: o.RegistryOption = None,
    advertise: o.AdvertiseOption = None,
) -> None:
    """The Code2Wav of a Qwen3-Omni: makes sound of a Talker's codes."""
    with told():
        o.require_torch()
        from engines.code2wav.launch import Code2WavSpec, exec_code2wav

        o.require_part(model, "code2wav_config")
        exec_code2wav(
            Code2WavSpec(
                model=str(model),
                port=port,
                host=host,
                served_name=served_name or model.resolve().name,
                device=o.device_named(device),
                dtype=dtype,
                first_chunk=first_chunk,
                chunk=chunk,
                left_context=left_context,
                max_batch=max_batch,
                api_key=api_key,
                registry=registry,
                advertise=advertise,
            )
        )
