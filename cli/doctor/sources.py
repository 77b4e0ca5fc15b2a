"""The engines that no setting names by its address: from the registry, a file, DNS names."""

from __future__ import annotations

from collections.abc import Sequence

from cli.doctor.finding import Check, Finding, fault, ok, warning
from cli.doctor.settings import REFUSED
from common.clock import SystemClock
from common.connectors import Connector
from common.engine import Engine
from common.errors import ConfigurationError
from gateway.bootstrap import store_of
from gateway.discovery import Discovery, Source
from gateway.discovery.registered import Registered
from gateway.named import other_sources
from gateway.settings import Settings

FIX = "see docs/discovery.md for what a registry, a file and a name must be like"


async def further(chosen: Settings, named: Sequence[Engine], kv: Connector) -> tuple[list[Engine], list[Finding]]:
    """Engines beside those that are `named`, and what is wrong with where they come from."""
    if not chosen.discovers:
        return [], []
    try:
        store = store_of(chosen) if chosen.registry else None
        registry: list[Source] = [] if store is None else [Registered(store, kv, SystemClock())]
        sources = [*registry, *other_sources(chosen, kv)]
    except ConfigurationError as e:
        return [], [fault(Check.ENGINES, e.message, why=REFUSED, do=FIX)]
    discovery = Discovery(sources, interval=chosen.discovery_interval)
    try:
        await discovery.look()
    finally:
        if store is not None:
            await store.aclose()
    known = {engine.id for engine in named}
    found = [one.engine for id_, (_, one) in discovery.engines().items() if id_ not in known]
    away = [
        warning(Check.ENGINES, asked.fault, why="its engines are not known now", do=FIX)
        for asked in discovery.asked
        if asked.fault is not None
    ]
    told = ok(Check.ENGINES, f"further engines of {', '.join(s.name for s in sources)}: {len(found)}")
    return found, away or [told]
