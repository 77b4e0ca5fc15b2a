"""The only place where parts are wired together."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI

from common.clock import SystemClock
from common.connectors import Connector, connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.ids import RandomIds
from gateway.api.app import create_app
from gateway.api.asgi import Gateway
from gateway.api.auth import Keys
from gateway.api.hot import HotPath
from gateway.api.protocol import bounded
from gateway.api.services import Services
from gateway.dispatch import Coordinator
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.cancel import CancelListener
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.policy import Policies
from gateway.dispatch.pulse import Pulse
from gateway.fleet import Fleet
from gateway.routing import Picker
from gateway.settings import Settings
from gateway.store.port import Store
from gateway.store.reaper import Reaper
from gateway.store.redis import RedisStore
from gateway.telemetry import Metrics
from gateway.transport.http import HttpEngineClient

log = logging.getLogger(__name__)


def connector_of(settings: Settings) -> Connector:
    """Raises ConfigurationError for a name that is not known."""
    return connector(settings.connector, lease=settings.kv_lease)


def engines_of(settings: Settings, kv: Connector) -> list[Engine]:
    """The engines that the settings name; one listed as prefill and as decode has role `both`.

    Raises ConfigurationError for a URL that is none or says what the connector does not know, or if a role has no
    engine.
    """
    found: dict[str, Engine] = {}
    for role, urls in ((Role.PREFILL, settings.prefill), (Role.DECODE, settings.decode)):
        if not urls:
            raise ConfigurationError(f"no {role.value} engine: expected --{role.value} URL or DUET_{role.name}")
        for url in dict.fromkeys(urls):
            engine = Engine.at(url, role)
            other = found.get(engine.id)
            if other is not None:
                engine = _once(engine, other)
            unknown = set(engine.facts) - set(kv.options)
            if unknown:
                known = ", ".join(kv.options) or "nothing"
                raise ConfigurationError(
                    f"{role.value} engine URL {url!r} says {unknown.pop()!r}; {kv.name} can be told {known}"
                )
            if role is Role.PREFILL:
                kv.lookup(engine)  # finds a wrong option before anything is started
            found[engine.id] = engine
    return list(found.values())


def _once(engine: Engine, other: Engine) -> Engine:
    """One engine out of two mentions of it. Raises ConfigurationError if they say different things."""
    facts = {**other.facts, **engine.facts}
    if engine.url != other.url or any(facts[name] != value for name, value in other.facts.items()):
        raise ConfigurationError(
            f"engine {engine.id} is named twice, as {other.url} {dict(other.facts)} and as {engine.url} "
            f"{dict(engine.facts)}; expected the same of both"
        )
    return replace(engine, role=engine.role if engine.role is other.role else Role.BOTH, facts=facts)


def store_of(settings: Settings) -> Store:
    """Redis. Raises ConfigurationError without a URL: `duet gateway` starts an embedded Valkey in that case."""
    if settings.redis_url is None:
        raise ConfigurationError("no Redis: expected --redis-url URL or DUET_REDIS_URL")
    return RedisStore.from_url(
        settings.redis_url.get_secret_value(),
        prefix=settings.redis_prefix,
        live_ttl=settings.live_ttl,
        record_ttl=settings.record_ttl,
    )


def build(settings: Settings, *, store: Store | None = None, kv: Connector | None = None) -> Gateway:
    """The whole gateway as one ASGI application; its lifespan starts and stops everything in order.

    `store` and `kv` take the place of what the settings name.
    """
    clock, ids, metrics = SystemClock(), RandomIds(), Metrics()
    replica = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    kv = kv if kv is not None else connector_of(settings)
    engines = engines_of(settings, kv)
    store = store if store is not None else store_of(settings)
    key = settings.engine_api_key
    client = HttpEngineClient(api_key=key.get_secret_value() if key is not None else None)
    admin = settings.admin_key
    keys = Keys(
        [k.get_secret_value() for k in settings.api_key], admin.get_secret_value() if admin is not None else None
    )
    fleet = Fleet(
        engines,
        client=client,
        store=store,
        clock=clock,
        connector=kv,
        metrics=metrics,
        interval=settings.health_interval,
        timeout=settings.health_timeout,
        failures=settings.health_failures,
        load_interval=settings.load_interval,
        breaker_failures=settings.breaker_failures,
        breaker_pause=settings.breaker_pause,
    )
    pulse = Pulse(clock)
    coordinator = Coordinator(
        fleet=fleet,
        picker=Picker(),
        store=store,
        client=client,
        connector=kv,
        clock=clock,
        ids=ids,
        metrics=metrics,
        deadlines=LegDeadlines.of(
            connect=settings.connect_timeout,
            prefill=settings.prefill_timeout,
            first_token=settings.first_token_timeout,
            idle=settings.idle_timeout,
            unary=settings.unary_timeout,
        ),
        policies=Policies(
            settings.on_prefill_failure,
            settings.on_handoff_missing,
            settings.on_decode_failure,
            settings.max_attempts,
        ),
        pulse=pulse,
        budget=RetryBudget(share=settings.retry_share, floor=settings.retry_floor),
        replica=replica,
        load_ttl=settings.load_ttl,
        refuse_unsplit=settings.unsplit == "refuse",
    )
    reaper = Reaper(
        store, clock=clock, ids=ids, owner=replica, lease=settings.owner_lease, on_reaped=metrics.reaped.inc
    )
    listener = CancelListener(store, coordinator, replica)
    services = Services(fleet, store, kv, coordinator, clock, metrics, keys, replica, clock.now())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.services = services
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.aclose)
            await client.start()
            stack.push_async_callback(client.aclose)
            await reaper.start()
            stack.push_async_callback(reaper.stop)
            stack.push_async_callback(coordinator.drain)
            await pulse.start()
            stack.push_async_callback(pulse.stop)
            await listener.start()
            stack.push_async_callback(listener.stop)
            await fleet.start()
            stack.push_async_callback(fleet.stop)
            log.info("replica %s: %d engines, connector %s", replica, len(engines), kv.name)
            yield

    app = create_app(lifespan)
    hot = HotPath(coordinator, keys, metrics, max_body=settings.max_body_bytes, receive_within=settings.receive_timeout)
    return Gateway(hot, app)


def serve(settings: Settings) -> None:
    """Runs the gateway until SIGTERM or SIGINT; requests that run then may end within `shutdown_grace`."""
    config = uvicorn.Config(
        build(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=bounded(max_header_bytes=settings.max_header_bytes, headers_within=settings.receive_timeout),
        lifespan="on",
        log_config=_logging(settings.log_level),
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    uvicorn.Server(config).run()


def _logging(level: str) -> dict[str, Any]:
    """One line an event on stderr, with its time in UTC's ISO form."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {"uvicorn": {"level": level.upper()}, "uvicorn.error": {"level": level.upper()}},
    }
