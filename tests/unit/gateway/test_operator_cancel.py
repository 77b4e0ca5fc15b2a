"""The end of a request on another replica: how long that one is waited for."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import cast

import pytest

from common.clock import SystemClock
from gateway.api.admin import requests
from gateway.api.admin.requests import OwnerAway
from gateway.api.services import Services
from gateway.lifecycle import Event, Record, State
from gateway.store.memory import MemoryStore
from gateway.store.port import Transition
from tests.contract.store.samples import new_record
from tests.unit.gateway.coordinating import Rig

WITHIN = 0.2
"""Seconds."""
OWNER = "replica-a"


def stand_still() -> None:
    time.sleep(2 * WITHIN)


class StoodStill(MemoryStore):
    """At its second look the whole process stands still, for longer than a cancellation waits; what it was told
    meanwhile it hears afterwards."""

    looked = 0

    async def get(self, request_id: str) -> Record | None:
        found = await super().get(request_id)
        self.looked += 1
        if self.looked == 2:
            stand_still()
        return found


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> StoodStill:
    monkeypatch.setattr(requests, "CANCEL_WITHIN", WITHIN)
    return StoodStill(SystemClock())


async def cancel(store: MemoryStore) -> str:
    services = SimpleNamespace(store=store, coordinator=Rig().coordinator, clock=SystemClock())
    ended = await requests.cancel("r1", cast(Services, services))
    state: str = ended["state"]
    return state


async def own(store: MemoryStore, *, ends: bool) -> None:
    """What the request's own replica does."""
    async for id_ in store.asked_cancels(OWNER):
        if ends:
            await asyncio.sleep(WITHIN / 20)
            await store.apply([Transition(id_, "end", 1, Event.CANCELLED, State.CANCELLED, time.time())])


@pytest.mark.parametrize("ends", [True, False])
async def test_an_owner_is_not_blamed_for_what_its_caller_slept_through(store: StoodStill, ends: bool) -> None:
    await store.admit(new_record(id="r1", owner=OWNER, state=State.DECODING))
    owner = asyncio.create_task(own(store, ends=ends))
    await asyncio.sleep(0)
    try:
        if ends:
            assert await cancel(store) == State.CANCELLED.value
        else:
            with pytest.raises(OwnerAway, match=f"{OWNER}, which runs the request, did not end it in {WITHIN:g} s"):
                await cancel(store)
    finally:
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
