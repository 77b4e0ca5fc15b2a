"""One decode for several requests: like lengths together, the oldest first, the cancelled not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from engines.code2wav.batcher import Batcher, Limits
from engines.code2wav.chunker import Codes
from engines.code2wav.errors import VocoderFailed
from engines.code2wav.vocoder import Wave


class Gate:
    """A decode that waits until it may go on; its waves tell which codes they are of."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.batches: list[list[int]] = []

    def decode(self, batch: Sequence[Codes]) -> list[Wave]:
        self.entered.set()
        assert self.open.wait(10)
        self.batches.append([len(codes) for codes in batch])
        if any(codes[0, 0] == 99 for codes in batch):
            raise RuntimeError("no memory")
        return [np.full(len(codes), codes[0, 0], dtype=np.float32) for codes in batch]


def codes(frames: int, name: int = 0) -> Codes:
    return np.full((frames, 2), name)


async def behind_the_gate(batcher: Batcher, gate: Gate, waiting: Sequence[Codes]) -> list[asyncio.Task[Wave]]:
    """The first is being decoded, the rest wait."""
    first = asyncio.create_task(batcher.decode(codes(1, 50)))
    await asyncio.to_thread(gate.entered.wait, 10)
    rest = [asyncio.create_task(batcher.decode(one)) for one in waiting]
    await asyncio.sleep(0)
    return [first, *rest]


async def test_what_waits_is_decoded_together_and_answered_apart() -> None:
    gate, sizes = Gate(), list[int]()
    async with Batcher(gate.decode, Limits(), sizes.append) as batcher:
        tasks = await behind_the_gate(batcher, gate, [codes(4 + at, at) for at in range(4)])
        gate.open.set()
        waves = await asyncio.gather(*tasks)
    assert gate.batches == [[1], [4, 5, 6, 7]]
    assert sizes == [1, 4]
    assert [(len(wave), int(wave[0])) for wave in waves] == [(1, 50), (4, 0), (5, 1), (6, 2), (7, 3)]


@pytest.mark.parametrize(
    ("limits", "lengths", "batches"),
    [
        (Limits(requests=2), [4, 4, 4], [[4, 4], [4]]),
        (Limits(frames=100), [50, 50, 50], [[50, 50], [50]]),
        (Limits(frames=10), [50, 4, 4], [[50], [4, 4]]),
        (Limits(), [50, 4, 25, 101, 100], [[50, 25, 100], [4], [101]]),
    ],
)
async def test_a_batch_is_bounded_and_of_like_lengths(
    limits: Limits, lengths: list[int], batches: list[list[int]]
) -> None:
    gate = Gate()
    async with Batcher(gate.decode, limits) as batcher:
        tasks = await behind_the_gate(batcher, gate, [codes(length) for length in lengths])
        gate.open.set()
        await asyncio.gather(*tasks)
    assert gate.batches[1:] == batches


async def test_the_cancelled_are_not_decoded() -> None:
    gate = Gate()
    async with Batcher(gate.decode, Limits()) as batcher:
        tasks = await behind_the_gate(batcher, gate, [codes(4), codes(5)])
        tasks[1].cancel()
        await asyncio.sleep(0)
        gate.open.set()
        assert len(await tasks[2]) == 5
    assert gate.batches == [[1], [5]]


async def test_a_failure_ends_its_batch_and_no_more() -> None:
    gate = Gate()
    async with Batcher(gate.decode, Limits(requests=2)) as batcher:
        tasks = await behind_the_gate(batcher, gate, [codes(4, 99), codes(4), codes(4, 7)])
        gate.open.set()
        for task in tasks[1:3]:
            with pytest.raises(VocoderFailed, match="a batch of 2 failed: RuntimeError: no memory"):
                await task
        assert int((await tasks[3])[0]) == 7


async def test_a_model_that_answers_too_little_fails_its_batch_and_no_other() -> None:
    short = [True]

    def decode(batch: Sequence[Codes]) -> list[Wave]:
        waves = [np.zeros(len(codes), dtype=np.float32) for codes in batch]
        return waves[1:] if short.pop() else waves

    async with Batcher(decode, Limits()) as batcher:
        with pytest.raises(VocoderFailed, match="the model gave 0 waves"):
            await batcher.decode(codes(3))
        short.append(False)
        assert len(await batcher.decode(codes(3))) == 3
