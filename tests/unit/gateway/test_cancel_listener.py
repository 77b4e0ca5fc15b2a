"""Hearing what others want ended, whatever is heard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from gateway.dispatch import Coordinator, cancel
from gateway.dispatch.cancel import CancelListener
from gateway.store.memory import MemoryStore
from tests.awaiting import until
from tests.fakes.clock import FakeClock


class Odd(MemoryStore):
    """Fails as nobody foresaw at first."""

    listened = 0

    async def asked_cancels(self, owner: str) -> AsyncIterator[str]:
        self.listened += 1
        if self.listened == 1:
            raise UnicodeError("no text")
        async for id_ in super().asked_cancels(owner):
            yield id_


class Ends:
    """What of a coordinator ends requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cancel(self, request_id: str) -> bool:
        self.asked.append(request_id)
        return True


async def test_what_fails_unforeseen_ends_no_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "AGAIN_AFTER", 0.01)
    store, ends = Odd(FakeClock()), Ends()
    listener = CancelListener(store, cast(Coordinator, ends), "replica-a")

    async def heard() -> bool:
        await store.ask_cancel("replica-a", "r1")
        return "r1" in ends.asked

    await listener.start()
    try:
        await until(heard, "a request that others want ended is ended")
    finally:
        await listener.stop()
    assert store.listened == 2
