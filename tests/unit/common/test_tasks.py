"""Ending background tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from common.tasks import Background, Lasting, end


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed > 1:
                    raise

    async def broken() -> None:
        raise ValueError

    async def done() -> None:
        return None

    tasks = [asyncio.create_task(work()) for work in (stubborn, broken, done)]
    await asyncio.sleep(0)
    await asyncio.wait_for(end(*tasks), 10)
    assert all(task.done() for task in tasks)
    assert swallowed == 2


async def test_nothing_to_end() -> None:
    await end()


async def test_background_work_starts_ends_and_starts_again() -> None:
    began = ended = 0

    async def work() -> None:
        nonlocal began, ended
        began += 1
        try:
            await asyncio.Event().wait()
        finally:
            ended += 1

    background = Background(work)
    await background.stop()
    for turn in (1, 2):
        background.start()
        await asyncio.sleep(0)
        assert (began, ended) == (turn, turn - 1)
        await background.stop()
        await background.stop()
        assert (began, ended) == (turn, turn)


async def test_what_a_loop_does_may_fail_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    each = Lasting(logging.getLogger("test"), "a look")
    done: list[None] = []
    for fault in ("a", "a", "b", None, "b"):
        with each:
            if fault is not None:
                raise ValueError(fault)
            done.append(fault)
    assert len(done) == 1
    told = [record.exc_info[1] for record in caplog.records if record.exc_info is not None]
    assert [str(error) for error in told] == ["a", "b", "b"]
    assert caplog.messages[0] == "a look failed by a fault of the gateway, and is repeated"


async def test_a_cancellation_ends_what_lasts() -> None:
    with pytest.raises(asyncio.CancelledError), Lasting(logging.getLogger("test"), "a look"):
        raise asyncio.CancelledError


async def test_a_cancellation_that_a_library_takes_for_its_own_ends_what_lasts() -> None:
    async def stubborn() -> None:
        each = Lasting(logging.getLogger("test"), "a look")
        for _ in range(3):
            with each:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    raise TimeoutError from None

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=1)
    assert task.cancelled()
