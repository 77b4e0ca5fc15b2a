"""What the FastAPI endpoints may use, and how they get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.datastructures import Headers

from common.clock import Clock
from common.connectors import Connector
from common.errors import Forbidden
from gateway.api.auth import Keys
from gateway.api.streams import Streams
from gateway.api.traffic import Traffic
from gateway.discovery import Discovery
from gateway.dispatch import Coordinator
from gateway.fleet import Fleet, Looker, Operator
from gateway.settings import Settings
from gateway.store.port import Store
from gateway.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class Services:
    fleet: Fleet
    store: Store
    connector: Connector
    coordinator: Coordinator
    clock: Clock
    metrics: Metrics
    keys: Keys
    replica: str
    started_at: float
    """Epoch seconds; stands as `created` of every model, since engines do not agree on one."""
    settings: Settings
    operator: Operator
    discovery: Discovery
    looker: Looker
    traffic: Traffic
    streams: Streams


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Served = Annotated[Services, Depends(_services)]


def _of_our_own_page(headers: Headers) -> bool:
    """Whether a browser sends it for a page of ours, or no browser sends it at all.

    `Origin` comes with every change that a page asks for; its scheme is not looked at, since TLS may end before us.
    `Sec-Fetch-Site` comes too where the connection is one that the browser trusts.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def client_only(request: Request, services: Served) -> None:
    services.keys.check_client(request.headers.get("authorization"))


def admin_only(request: Request, services: Served) -> None:
    changes = request.method not in ("GET", "HEAD")
    if changes and not _of_our_own_page(request.headers):
        raise Forbidden("a page of another site asked for this change; expected the admin page, or no browser")
    services.keys.check_admin(request.headers.get("authorization"), changes=changes)
