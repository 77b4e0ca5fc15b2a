"""The only place where parts are wired together."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from common.clock import SystemClock
from common.connectors import Connector
from common.errors import ConfigurationError
from common.ids import RandomIds
from gateway.api.app import create_app
from gateway.api.asgi import Gateway
from gateway.api.auth import Keys
from gateway.api.body import Bodies
from gateway.api.hot import HotPath
from gateway.api.protocol import BoundedProtocol, bounded
from gateway.api.services import Services
from gateway.api.streams import Streams
from gateway.api.traffic import Traffic
from gateway.discovery import Discovery
from gateway.dispatch import Coordinator
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.cancel import CancelListener
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.policy import Policies
from gateway.dispatch.pulse import Pulse
from gateway.fleet import Fleet, Looker, Operator, Reporter
from gateway.named import connector_of, engines_of, sources_of, speech_engines_of
from gateway.routing import Picker
from gateway.settings import Settings
from gateway.store.port import Store
from gateway.store.reaper import Reaper
from gateway.store.redis import RedisStore
from gateway.telemetry import Metrics
from gateway.transport.http import HttpEngineClient

log = logging.getLogger(__name__)


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
    engines = [*engines_of(settings, kv), *speech_engines_of(settings)]
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
            headers=settings.headers_timeout,
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
            settings.on_speech_failure,
        ),
        pulse=pulse,
        budget=RetryBudget(share=settings.retry_share, floor=settings.retry_floor),
        replica=replica,
        load_ttl=settings.load_ttl,
        audio_ttl=settings.audio_ttl,
        recalled_most=settings.max_body_bytes,
        refuse_unsplit=settings.unsplit == "refuse",
        admission=settings.admission_timeout,
    )
    reaper = Reaper(
        store, clock=clock, ids=ids, owner=replica, lease=settings.owner_lease, on_reaped=metrics.reaped.inc
    )
    listener = CancelListener(store, coordinator, replica)
    looker, every = Looker(client, clock), settings.load_interval
    discovery = Discovery(sources_of(settings, engines, store, kv, clock), interval=settings.discovery_interval)
    operator = Operator(
        fleet, discovery, store=store, connector=kv, looker=looker, clock=clock, replica=replica, interval=every
    )
    reporter = Reporter(fleet, store=store, clock=clock, replica=replica, interval=every)
    streams = Streams()
    services = Services(
        fleet=fleet,
        store=store,
        connector=kv,
        coordinator=coordinator,
        clock=clock,
        metrics=metrics,
        keys=keys,
        replica=replica,
        started_at=clock.now(),
        settings=settings,
        operator=operator,
        discovery=discovery,
        looker=looker,
        traffic=Traffic(store, clock),
        streams=streams,
    )

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
            await discovery.start()
            stack.push_async_callback(discovery.stop)
            await operator.start()
            stack.push_async_callback(operator.stop)
            await fleet.start()
            stack.push_async_callback(fleet.stop)
            await reporter.start()
            stack.push_async_callback(reporter.stop)
            log.info("replica %s: %d engines, connector %s", replica, len(fleet.members), kv.name)
            yield

    app = create_app(lifespan)
    bodies = Bodies(most=settings.max_body_bytes, within=settings.receive_timeout)
    hot = HotPath(coordinator, keys, metrics, bodies)
    return Gateway(hot, app, bodies, streams, metrics, admin_port=settings.admin_port)


def http_of(settings: Settings, gateway: Gateway) -> type[BoundedProtocol]:
    """How it is served: uvicorn's `http`."""
    return bounded(
        max_header_bytes=settings.max_header_bytes,
        headers_within=settings.receive_timeout,
        written_within=settings.write_timeout,
        on_stalled=gateway.metrics.stalled.inc,
    )


def serve(settings: Settings) -> None:
    """Runs the gateway until SIGTERM or SIGINT; requests that run then may end within `shutdown_grace`."""
    gateway = build(settings)
    config = uvicorn.Config(
        gateway,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=http_of(settings, gateway),
        ws="none",
        lifespan="on",
        log_config=_logging(settings.log_level),
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
    )
    if settings.admin_port is None:
        Server(config, gateway).run()
        return
    admin = uvicorn.Config(gateway, host=settings.admin_address, port=settings.admin_port, log_config=None)
    Server(config, gateway).run([config.bind_socket(), admin.bind_socket()])


class Server(uvicorn.Server):
    """Tells the application before it waits for what is open."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.going_down()
        await super().shutdown(sockets)


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
