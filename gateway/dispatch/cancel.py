"""Hears which of this replica's requests others want ended, and ends them."""

from __future__ import annotations

import asyncio
import logging

from common.errors import StoreUnavailable
from common.tasks import Background, Lasting
from gateway.dispatch.coordinator import Coordinator
from gateway.store.port import Store

log = logging.getLogger(__name__)

AGAIN_AFTER = 0.5
"""Seconds until the store is asked again after it went away."""


class CancelListener:
    def __init__(self, store: Store, coordinator: Coordinator, replica: str) -> None:
        self._store = store
        self._coordinator = coordinator
        self._replica = replica
        self._task = Background(self._run)

    async def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        each = Lasting(log, "hearing cancellations")
        while True:
            with each:
                await self._hear()
            await asyncio.sleep(AGAIN_AFTER)

    async def _hear(self) -> None:
        """Until the store goes away."""
        try:
            async for request_id in self._store.asked_cancels(self._replica):
                if self._coordinator.cancel(request_id):
                    log.info("request %s is cancelled, as another replica asked", request_id)
        except StoreUnavailable as e:
            log.debug("cancellations are not heard for now: %s", e.message)
