"""Time to first audio, beside a run that waits for all the text: `make bench-speech`.

Prefill, decode, Talker and Code2Wav run here with the tiny Qwen3-Omni, whose weights are random. The same request is
asked in pairs: once with speech asked for beside decode, as a gateway does it; once with speech asked for when decode
has said its last word. Which comes first in a pair changes from pair to pair. Seconds are from the request's beginning,
prefill included, to the first samples; a text of so many tokens is what the second way waits for. Engines that share
cores take time from each other: on few and busy ones a short text gains nothing.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.contract.talker.oracle import SPEAKER
from tests.e2e.speech.asking import PREFILLS, leg, spoken
from tests.e2e.speech.stages import Engines, engines
from tests.real_engines import wait_for

PAIRS = 6
TOKENS = (25, 100, 400)
FRAMES = 100
"""At most; what follows the first samples is cancelled."""
MESSAGES = [{"role": "user", "content": "Tell me a story"}]


class Times(NamedTuple):
    """Seconds to the first samples, and to the last word of the text."""

    audio: float
    text: float


async def ask(stages: Engines, name: str, tokens: int, *, waits: bool) -> Times:
    began = time.perf_counter()
    prefilled = await leg(stages.prefill, MESSAGES, f"{name}-p", 1, PREFILLS)
    text = asyncio.create_task(_text(stages, name, tokens, prefilled["kv_transfer_params"]))
    if waits:
        await text
    streams = stages.prefill.stream(f"{name}-p", "thinker"), stages.decode.stream(f"{name}-d", "thinker")
    body = {"request_id": name, "conditioning": [str(stream) for stream in streams]}
    body |= {"speaker": SPEAKER, "max_frames": FRAMES}
    speech = asyncio.create_task(spoken(stages.talker, body))
    heard = await _first_audio(stages, str(stages.talker.stream(name, "talker")))
    speech.cancel()
    await asyncio.gather(speech, return_exceptions=True)
    return Times(heard - began, await text - began)


async def _text(stages: Engines, name: str, tokens: int, kv: dict[str, object]) -> float:
    """When all of it is there."""
    await leg(stages.decode, MESSAGES, f"{name}-d", tokens, kv, ignore_eos=True)
    return time.perf_counter()


async def _first_audio(stages: Engines, codes: str) -> float:
    """When the first samples are there; the others are not waited for."""
    async with (
        httpx.AsyncClient(timeout=300) as client,
        client.stream("POST", f"{stages.code2wav.url}/v1/code2wav", json={"codes": codes}) as reply,
    ):
        reply.raise_for_status()
        await anext(reply.aiter_bytes())
        return time.perf_counter()


async def measure(stages: Engines, tokens: int) -> str:
    pairs = []
    for at in range(PAIRS + 1):
        order = (False, True) if at % 2 else (True, False)
        found = {waits: await ask(stages, f"{tokens}-{at}-{waits}", tokens, waits=waits) for waits in order}
        pairs.append((found[False], found[True]))
    pairs = pairs[1:]  # the first of a kind warms up
    beside, behind = (statistics.median(pair[way].audio for pair in pairs) for way in (0, 1))
    text = statistics.median(pair[1].text for pair in pairs)
    ratio = statistics.median(one.audio / other.audio for one, other in pairs)
    first = f"first audio {1e3 * beside:5.0f} ms beside the text, {1e3 * behind:5.0f} ms behind it, ratio {ratio:.2f}"
    return f"{tokens:4} tokens   {first}   whole text {1e3 * text:5.0f} ms"


def main() -> None:
    print(f"time to first audio, medians of {PAIRS} pairs")
    with tempfile.TemporaryDirectory(prefix="duet-") as folder, engines(Path(folder)) as stages:
        wait_for(*stages.all)
        for tokens in TOKENS:
            print(asyncio.run(measure(stages, tokens)), flush=True)


if __name__ == "__main__":
    main()
