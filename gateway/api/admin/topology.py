"""The graph: which stages there are, which engines stand in them, what goes from one to the next."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from common.engine import Role
from common.errors import StoreUnavailable
from gateway.api.admin.described import TOPOLOGY, answers
from gateway.api.services import Served, Services
from gateway.api.traffic import GATEWAY, KINDS, NOTHING, Counted, Edge
from gateway.api.views import member_view
from gateway.fleet import Gauges, Member

router = APIRouter()

STAGES = (
    ("prefill", "Thinker prefill", (Role.PREFILL,)),
    ("decode", "Thinker decode", (Role.DECODE,)),
    ("both", "Thinker prefill and decode", (Role.BOTH,)),
    ("talker", "Talker", (Role.TALKER,)),
    ("code2wav", "Code2Wav", (Role.CODE2WAV,)),
)


@router.get("/topology", responses=answers(TOPOLOGY, 503))
async def topology(services: Served) -> dict[str, Any]:
    """Stages, engines and edges with their traffic, and whether a request could be served now.

    `up`, `fault`, `breaker` and `load` are as this replica sees them; the rest is the same on all of them.
    """
    fleet, kv = services.fleet, services.connector
    members = list(fleet.members.values())
    try:
        counted, fault = await services.traffic.count(), None
    except StoreUnavailable as e:  # the engines are to be seen all the same, just then
        counted, fault = NOTHING, e.message
    return {
        "replica": services.replica,
        "connector": {
            "name": kv.name,
            "order": kv.order.value,
            "lease_seconds": kv.lease,
            "cancel": kv.cancel.value,
        },
        "stages": _stages(members),
        "engines": await engine_views(services, members),
        "sources": [
            {"name": asked.source.name, "engines": len(asked.found), "fault": asked.fault}
            for asked in services.discovery.asked
        ],
        "edges": _edges(counted, members),
        "edges_fault": fault,
        "window_seconds": round(counted.window, 3),
        "models": {name: {"max_model_len": length} for name, length in fleet.models().items()},
        "routable": {leg.value: fleet.routable(leg) for leg in (Role.PREFILL, Role.DECODE)},
    }


async def engine_views(services: Services, members: list[Member]) -> list[dict[str, Any]]:
    """Engines as the fleet has them, with what they tell of themselves."""
    gauges = await services.looker.look(members)
    now = services.clock.monotonic()
    return [engine_view(m, gauges[m.engine.id], now, services.connector.lease) for m in members]


def engine_view(member: Member, gauges: Gauges, now: float, lease: float) -> dict[str, Any]:
    """`now` is the breaker's time; `lease` is the connector's, in seconds."""
    return {
        **member_view(member),
        "leaving": member.leaving,
        "refused": member.refused,
        "source": member.source,
        "running_here": member.local,
        "breaker": member.breaker.state(now).value,
        "kv": {
            "usage": gauges.kv_usage,
            "lease_seconds": lease if member.engine.role.serves(Role.PREFILL) else None,
        },
        "running": gauges.running,
        "waiting": gauges.waiting,
        "identity": member.identity,
    }


def _stages(members: list[Member]) -> list[dict[str, Any]]:
    """Those that have an engine, in the order in which a request passes them."""
    found = []
    for id_, name, roles in STAGES:
        there = [m for m in members if m.engine.role in roles]
        if there:
            open_ = sum(m.up and m.open for m in there)
            found.append({"id": id_, "name": name, "engines": [m.engine.id for m in there], "routable": open_})
    return found


def _edges(counted: Counted, members: list[Member]) -> list[dict[str, Any]]:
    """Edges between what is there now, in the order in which a request passes them."""
    there = {GATEWAY, *(m.engine.id for m in members)}
    shown = [edge for edge in counted.edges if edge.source in there and edge.target in there]
    shown.sort(key=lambda edge: (KINDS.index(edge.kind), edge.source, edge.target))
    return [_edge_view(edge, counted.window) for edge in shown]


def _edge_view(edge: Edge, window: float) -> dict[str, Any]:
    return {
        "from": edge.source,
        "to": edge.target,
        "kind": edge.kind,
        "requests": edge.requests,
        "per_second": round(edge.requests / window, 3),
        "running": edge.running,
        "failed": edge.failed,
        "retried": edge.retried,
        "mean_seconds": round(sum(edge.seconds) / len(edge.seconds), 6) if edge.seconds else None,
    }
