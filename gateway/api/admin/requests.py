"""Who is served: pages of requests, one request's life, and its end if somebody wants it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query

from common.errors import BadRequest, DuetError, RequestNotFound
from gateway.api.admin.described import CANCELLED, REQUEST, REQUESTS, answers
from gateway.api.admin.timeline import spans
from gateway.api.services import Served, Services
from gateway.api.views import record_summary, record_view
from gateway.lifecycle import Record, State
from gateway.transport.awake import within

router = APIRouter()

SCAN = 1000
"""Requests that one page of a listing looks through at most; it may end with fewer than were asked for."""
PAGE = 200
"""Requests that are looked at in one round trip where only some are wanted."""
CANCEL_WITHIN = 2.0
"""Seconds that a cancellation waits for the replica that runs the request, before it says that this one is away."""
LOOK_AGAIN = 0.01
_CURSOR = re.compile(r"([0-9]{1,12}\.[0-9]{1,12})_([0-9a-zA-Z]{1,64})")

Wanted = Callable[[Record], bool]


class OwnerAway(DuetError):
    """The replica that runs a request does not hear. Its requests end with its lease, if it is dead."""

    status = 503
    type = "service_unavailable"
    code = "owner_away"
    retry_after = 2.0


@router.get("/requests", responses=answers(REQUESTS, 400, 503))
async def requests(
    services: Served,
    limit: Annotated[int, Query(ge=1, le=SCAN, description="requests on a page")] = 50,
    state: Annotated[list[State] | None, Query(description="in one of these states; `state=a&state=b`")] = None,
    engine: Annotated[str | None, Query(max_length=256, description="that ran on this engine")] = None,
    model: Annotated[str | None, Query(max_length=256)] = None,
    replica: Annotated[str | None, Query(max_length=256, description="that this gateway ran")] = None,
    before: Annotated[str | None, Query(max_length=128, description="`next` of the page before this one")] = None,
) -> dict[str, Any]:
    """The newest requests of all replicas, newest first. `next` is null on the last page."""

    def wanted(record: Record) -> bool:
        return (
            (not state or record.state in state)
            and (engine is None or engine in record.engines)
            and (model is None or model == record.model)
            and (replica is None or replica == record.owner)
        )

    everybody = not state and engine is None and model is None and replica is None
    records, following = await _page(services, limit, wanted, everybody, _cursor(before))
    return {"requests": [record_summary(record) for record in records], "next": following}


@router.get("/requests/{request_id}", responses=answers(REQUEST, 404, 503))
async def request(request_id: str, services: Served) -> dict[str, Any]:
    """One request of any replica: its life so far, its engines, its handoff without secrets, time per phase, and spans
    for a waterfall.

    Takes the id of the `x-duet-request-id` header, or the `id` of an answer.
    """
    record = await known(services, request_id)
    events = await services.store.events(record.id)
    now = services.clock.now()
    timeline = [span.view() for span in spans(record, events)]
    return {**record_view(record, events, now=now), "spans": timeline, "now": now}


@router.delete("/requests/{request_id}", responses=answers(CANCELLED, 404, 503))
async def cancel(request_id: str, services: Served) -> dict[str, Any]:
    """Ends a request, whichever replica runs it, and answers with what became of it. What has ended stays as it is."""
    key = bare_id(request_id)
    record = await known(services, request_id)
    if record.live and not services.coordinator.cancel(key) and not await services.store.ask_cancel(record.owner, key):
        raise OwnerAway(f"the gateway {record.owner}, which runs the request, does not listen now")
    try:
        async with within(CANCEL_WITHIN):
            while record.live:
                await asyncio.sleep(LOOK_AGAIN)
                record = await known(services, request_id)
    except TimeoutError:
        raise OwnerAway(
            f"the gateway {record.owner}, which runs the request, did not end it in {CANCEL_WITHIN:g} s"
        ) from None
    return record_summary(record)


async def known(services: Services, request_id: str) -> Record:
    """Raises RequestNotFound."""
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


async def _page(
    services: Services, limit: int, wanted: Wanted, everybody: bool, before: tuple[float, str] | None
) -> tuple[list[Record], str | None]:
    """Records, and where the next page begins; None if nothing follows."""
    kept: list[Record] = []
    looked = 0
    while len(kept) < limit and looked < SCAN:
        size = limit if everybody else PAGE
        records = await services.store.recent(size, before=before)
        for record in records:
            before = (record.created_at, record.id)
            looked += 1
            if wanted(record):
                kept.append(record)
                if len(kept) == limit:
                    return kept, _following(before)
        if len(records) < size:
            return kept, None
    return kept, _following(before)


def _following(at: tuple[float, str] | None) -> str | None:
    return f"{at[0]:.9f}_{at[1]}" if at is not None else None


def _cursor(given: str | None) -> tuple[float, str] | None:
    if given is None:
        return None
    found = _CURSOR.fullmatch(given)
    if found is None:
        raise BadRequest(f"before {given!r:.128}: expected `next` of another page", param="before")
    return float(found[1]), found[2]
