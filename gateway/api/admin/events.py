"""What happens, as server-sent events: everything (`/admin/events`), or one request's. Any replica serves either from
Redis, and goes on from `Last-Event-ID` where another stopped.

| `event:` | `data:` |
| --- | --- |
| `request` | `event`, `request`, `state`, `version`, `at`: a transition; `overtaken`: what it is in truth |
| `engine` | `event`, `engine`, `replica`, `at`: an order of an operator, or what became of an engine |
| `gap` | `after`: what followed that event is no longer kept, so read the whole picture anew |

A row may come twice, with the same `version`. While nothing happens there is a comment every QUIET seconds.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from gateway.api.admin.described import EVENTS, streams
from gateway.api.admin.requests import known
from gateway.api.services import Served, Services
from gateway.lifecycle import TERMINAL
from gateway.store.port import EventRow, FeedRow

router = APIRouter()

QUIET = 15.0
"""Seconds of silence after which a proxy, or a client, wants to see that the stream lives."""
AT_ONCE = 500
"""Rows of one look."""
BEGINNING = "0-0"

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=64, description="the id of the last event that was received")
]


@router.get("/events", response_class=StreamingResponse, responses=streams(EVENTS, 400, 503))
async def everything(services: Served, last: LastEventId = None) -> StreamingResponse:
    """All that happens from now on, or after `Last-Event-ID`."""
    gap = last is not None and last != BEGINNING and not await services.store.feed_has(last)
    if last is None:
        newest = await services.store.feed(1)
        start = newest[-1].id if newest else BEGINNING
    else:
        start = last
    return services.streams.answer(_feed(services, start, gap=gap))


@router.get("/requests/{request_id}/events", response_class=StreamingResponse, responses=streams(EVENTS, 400, 404, 503))
async def of_one(request_id: str, services: Served, last: LastEventId = None) -> StreamingResponse:
    """One request's transitions, from the first or after `Last-Event-ID`, until its end."""
    record = await known(services, request_id)
    first = await services.store.events(record.id, after=last)
    return services.streams.answer(_life(services, record.id, list(first), last))


async def _feed(services: Services, after: str, *, gap: bool) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    if gap:
        yield _event("gap", None, {"after": after})
    quiet = services.clock.monotonic()
    while True:
        rows = await services.store.feed(AT_ONCE, after=after)
        for row in rows:
            yield _row(row)
            after = row.id
        if rows:
            quiet = services.clock.monotonic()
        elif services.clock.monotonic() - quiet > QUIET:
            quiet = services.clock.monotonic()
            yield b": quiet\n\n"
        if len(rows) < AT_ONCE and not await services.streams.pause():
            return


async def _life(services: Services, request_id: str, rows: list[EventRow], after: str | None) -> AsyncIterator[bytes]:
    """Ends with the request, or when its record's time is over."""
    yield b"retry: 1000\n\n"
    while True:
        for row in rows:
            after = row.id
            fields = {"event": row.event, "request": request_id, "state": row.state.value, "at": row.at}
            yield _event("request", row.id, fields)
        record = None if rows else await services.store.get(request_id)
        if not rows and (record is None or record.state in TERMINAL):
            return
        if not rows and not await services.streams.pause():
            return
        rows = list(await services.store.events(request_id, after=after))


def _row(row: FeedRow) -> bytes:
    fields: dict[str, Any] = {**row.fields, "at": row.at}
    if "version" in fields:
        fields["version"] = int(fields["version"])
    return _event("request" if "request" in fields else "engine", row.id, fields)


def _event(name: str, id_: str | None, fields: Mapping[str, Any]) -> bytes:
    head = f"event: {name}\n" + (f"id: {id_}\n" if id_ is not None else "")
    return f"{head}data: {json.dumps(fields, separators=(',', ':'))}\n\n".encode()
