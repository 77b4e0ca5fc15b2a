"""What an operator asks: which engines, which requests, and what became of one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from common.engine import Role
from common.errors import DuetError, RequestNotFound
from gateway.api.services import Served, Services, admin_only
from gateway.api.views import member_view, record_summary, record_view
from gateway.lifecycle import Record, State

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[Depends(admin_only)])

SCAN = 1000
"""Newest requests that a listing looks through."""
CANCEL_WITHIN = 2.0
"""Seconds that a cancellation waits for the replica that runs the request, before it says that this one is away."""
LOOK_AGAIN = 0.01


class OwnerAway(DuetError):
    """The replica that runs a request does not hear. Its requests end with its lease, if it is dead."""

    status = 503
    type = "service_unavailable"
    code = "owner_away"
    retry_after = 2.0


@router.get("/topology")
async def topology(services: Served) -> dict[str, Any]:
    """The connector, every engine as this replica sees it, and whether a request could be served now."""
    fleet = services.fleet
    return {
        "replica": services.replica,
        "connector": {
            "name": services.connector.name,
            "order": services.connector.order.value,
            "lease_seconds": services.connector.lease,
            "cancel": services.connector.cancel.value,
        },
        "engines": [member_view(member) for member in fleet.members.values()],
        "models": {name: {"max_model_len": length} for name, length in fleet.models().items()},
        "routable": {leg.value: fleet.routable(leg) for leg in (Role.PREFILL, Role.DECODE)},
    }


@router.get("/requests")
async def requests(
    services: Served,
    limit: Annotated[int, Query(ge=1, le=SCAN)] = 50,
    state: State | None = None,
) -> dict[str, Any]:
    """The newest requests of all replicas, newest first; `state` keeps those in it."""
    records = await services.store.recent(limit if state is None else SCAN)
    kept = [r for r in records if state is None or r.state is state][:limit]
    return {"requests": [record_summary(record) for record in kept]}


@router.get("/requests/{request_id}")
async def request(request_id: str, services: Served) -> dict[str, Any]:
    """One request of any replica: its life so far, its engines, its handoff without secrets, time per phase.

    Takes the id of the `x-duet-request-id` header, or the `id` of an answer.
    """
    record = await _known(services, request_id)
    return record_view(record, await services.store.events(record.id), now=services.clock.now())


@router.delete("/requests/{request_id}")
async def cancel(request_id: str, services: Served) -> dict[str, Any]:
    """Ends a request, whichever replica runs it, and answers with what became of it. What has ended stays as it is."""
    key = bare_id(request_id)
    record = await _known(services, request_id)
    if record.live and not services.coordinator.cancel(key) and not await services.store.ask_cancel(record.owner, key):
        raise OwnerAway(f"the gateway {record.owner}, which runs the request, does not listen now")
    deadline = services.clock.monotonic() + CANCEL_WITHIN
    while record.live:
        if services.clock.monotonic() > deadline:
            raise OwnerAway(
                f"the gateway {record.owner}, which runs the request, did not end it in {CANCEL_WITHIN:g} s"
            )
        await asyncio.sleep(LOOK_AGAIN)
        record = await _known(services, request_id)
    return record_summary(record)


async def _known(services: Services, request_id: str) -> Record:
    record = await services.store.get(bare_id(request_id))
    if record is None:
        raise RequestNotFound(
            f"request {request_id!r:.200} is not known under that x-duet-request-id: it was never admitted, or its "
            "record's time is over"
        )
    return record


def bare_id(given: str) -> str:
    """The request's id out of what a client may hold: `chatcmpl-<id>-1-decode`, `cmpl-<id>-1-decode`, `<id>`."""
    for prefix in ("chatcmpl-", "cmpl-"):
        given = given.removeprefix(prefix)
    return given.partition("-")[0]
