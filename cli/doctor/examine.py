"""Every check, concurrently where they do not need each other, each within its time.

A check that fails, hangs or breaks is a finding; it hides no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from cli.doctor import engine, installation, machine, pair, redis, settings, sources, speech
from cli.doctor.ask import Asker, EngineLook
from cli.doctor.finding import Check, Finding, fault, warning
from cli.doctor.trial import Trials, plan
from common.clock import SystemClock
from common.connectors import Connector
from common.engine import Engine
from common.errors import ConfigurationError, StoreUnavailable
from common.ids import RandomIds
from gateway.settings import Settings
from gateway.transport.http import HttpEngineClient

LEGS = 2
"""Answers that a trial waits for."""


async def examine(chosen: Settings, *, within: float, probe: bool) -> list[Finding]:
    """All findings, in the order of `Check`'s parts. `within` bounds one wait for an answer, in seconds; with `probe`
    a request of one token is sent through both legs."""
    local, store, served = await asyncio.gather(
        _bounded(Check.PYTHON, "", within, _local),
        _bounded(Check.REDIS, "", within, partial(_redis, chosen)),
        _fleet(chosen, within, probe),
    )
    return [*local, *store, *served]


async def _local() -> list[Finding]:
    return [*machine.judge(machine.look()), *installation.judge(installation.look())]


async def _redis(chosen: Settings) -> list[Finding]:
    if chosen.redis_url is None:
        own = warning(
            Check.REDIS,
            "no Redis is named: the gateway starts an embedded Valkey",
            why="other replicas cannot see its requests, and its records go with it",
            do="set --redis-url (DUET_REDIS_URL) for more than one gateway, or leave it for one that stands alone",
        )
        return [own]
    url = chosen.redis_url.get_secret_value()
    try:
        return redis.judge(await redis.look(url))
    except ConfigurationError as e:
        return [
            fault(Check.REDIS, e.message, why=settings.REFUSED, do="set --redis-url (DUET_REDIS_URL) to such a URL")
        ]
    except StoreUnavailable as e:
        return [redis.unreachable(e, redis.without_password(url))]


async def _fleet(chosen: Settings, within: float, probe: bool) -> list[Finding]:
    kv, named = settings.connector(chosen)
    engines, listed = settings.engines(chosen, kv)
    speaking, told = settings.speech_engines(chosen)
    engines, listed = [*engines, *speaking], [*listed, *told]
    if kv is not None:
        more, told = await sources.further(chosen, engines, kv)
        engines, listed = [*engines, *more], [*listed, *told]
    key = chosen.engine_api_key
    client = HttpEngineClient(api_key=key.get_secret_value() if key is not None else None)
    await client.start()
    try:
        ask = Asker(client, kv, within)
        looks = await asyncio.gather(*(_looked(ask, e, within) for e in engines))
        thinkers = [look for look in looks if look.engine.role.thinks]
        seen = [f for look in thinkers for f in engine.judge(look, kv)]
        paired = await _pairs(thinkers, kv, ask if probe else None, within)
        spoken = speech.judge([look for look in looks if not look.engine.role.thinks], thinkers)
        return [named, *listed, *seen, *paired, *spoken]
    finally:
        await client.aclose()


async def _looked(ask: Asker, one: Engine, within: float) -> EngineLook:
    """An engine may take its time for each answer, but not for all of them together."""
    try:
        async with asyncio.timeout(within * LEGS):
            return await ask.look(one)
    except TimeoutError:
        return EngineLook(one, down=f"engine {one.id} did not answer everything within {within * LEGS:g} s")
    except Exception as e:
        return EngineLook(one, down=f"engine {one.id} could not be looked at: {type(e).__name__}: {e}")


async def _pairs(looks: Sequence[EngineLook], kv: Connector | None, ask: Asker | None, within: float) -> list[Finding]:
    pairs = pair.pairs_of(looks)
    missing = pair.none_left(looks, pairs)
    if kv is None:
        return missing
    found, good = pair.judge(pairs, kv)
    if ask is None:
        return [*missing, *found]
    trials, todo = Trials(ask, kv, SystemClock(), RandomIds()), plan(looks, pairs, good)
    queue = max((sum(p.decode is d for p in todo.pairs) for d in looks), default=1)  # trials wait for their decode
    each = within * (LEGS + 1)
    results = await asyncio.gather(
        *(_bounded(Check.TRANSFER, p.about, each * max(queue, 1), partial(trials.split, p)) for p in todo.pairs),
        *(_bounded(Check.PREFILL, p.engine.id, each, partial(trials.alone, p, d)) for p, d in todo.alone),
    )
    return [*missing, *found, *(f for result in results for f in result)]


async def _bounded(
    check: Check, about: str, within: float, run: Callable[[], Awaitable[list[Finding]]]
) -> list[Finding]:
    why = "nothing is known of it, so nothing can be said for it"
    try:
        async with asyncio.timeout(within):
            return await run()
    except TimeoutError:
        late, fix = f"the check did not end within {within:g} s", "look at what it asks, or allow more with --timeout"
        return [fault(check, late, why=why, do=fix, about=about)]
    except Exception as e:
        broke, fix = f"the check itself broke: {type(e).__name__}: {e}", "report this line; the other findings stand"
        return [fault(check, broke, why=why, do=fix, about=about)]
