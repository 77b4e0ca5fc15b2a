"""One decode for what several requests have ready, in a thread, so that the event loop goes on sending."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from common.tasks import end
from engines.code2wav.chunker import Codes
from engines.code2wav.errors import VocoderFailed
from engines.code2wav.vocoder import Wave

Decode = Callable[[Sequence[Codes]], list[Wave]]


@dataclass(frozen=True, slots=True)
class Limits:
    """At most `requests` in a batch, and `frames` with what fills up the shorter ones; the oldest always goes."""

    requests: int = 16
    frames: int = 1024


@dataclass(slots=True, eq=False)
class _Job:
    codes: Codes
    result: asyncio.Future[Wave] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Runs `decode` in a thread of its own. `seen` is told the size of each batch."""

    def __init__(self, decode: Decode, limits: Limits, seen: Callable[[int], None] = lambda size: None) -> None:
        self._decode = decode
        self._limits = limits
        self._seen = seen
        self._jobs: deque[_Job] = deque()
        self._ready = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="code2wav")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        await end(self._task)
        self._thread.shutdown(cancel_futures=True)

    async def decode(self, codes: Codes) -> Wave:
        """Waits its turn. Cancelled before that, it is not decoded. Raises VocoderFailed."""
        job = _Job(codes)
        self._jobs.append(job)
        self._ready.set()
        return await job.result

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            batch = self._take()
            if not batch:
                self._ready.clear()
                continue
            self._seen(len(batch))
            codes = [job.codes for job in batch]
            try:
                waves = await asyncio.get_running_loop().run_in_executor(self._thread, self._decode, codes)
                if len(waves) != len(batch):
                    raise ValueError(f"the model gave {len(waves)} waves")
            except Exception as e:
                error = VocoderFailed(f"a batch of {len(batch)} failed: {type(e).__name__}: {e}")
                for job in batch:
                    if not job.result.done():
                        job.result.set_exception(error)
            else:
                for job, wave in zip(batch, waves, strict=True):
                    if not job.result.done():
                        job.result.set_result(wave)

    def _take(self) -> list[_Job]:
        """The oldest, and with it those whose length is between half and twice its own: filling up costs time too."""
        waiting = [job for job in self._jobs if not job.result.done()]
        if not waiting:
            self._jobs.clear()
            return []
        size = len(waiting[0].codes)
        batch: list[_Job] = []
        longest = 0
        for job in waiting:
            frames = len(job.codes)
            fits = max(longest, frames) * (len(batch) + 1) <= self._limits.frames and size <= 2 * frames <= 4 * size
            if not batch or (fits and len(batch) < self._limits.requests):
                batch.append(job)
                longest = max(longest, frames)
        taken = set(batch)
        self._jobs = deque(job for job in waiting if job not in taken)
        return batch
