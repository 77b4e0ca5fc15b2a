"""Asking a Code2Wav, and its sound as samples."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np

CLOSE = 1e-3
"""Of full scale."""


def samples(pcm: bytes) -> Any:
    return np.frombuffer(pcm, "<i2") / 32767


async def ask(client: httpx.AsyncClient, reference: str, from_sample: int = 0) -> Any:
    reply = await client.post("/v1/code2wav", json={"codes": reference, "from_sample": from_sample})
    assert reply.status_code == 200, reply.text
    return samples(reply.content)


async def counted(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))
