"""What the FastAPI endpoints may use, and how they get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from common.clock import Clock
from common.connectors import Connector
from gateway.api.auth import Keys
from gateway.dispatch import Coordinator
from gateway.fleet import Fleet
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


def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Served = Annotated[Services, Depends(_services)]


def client_only(request: Request, services: Served) -> None:
    services.keys.check_client(request.headers.get("authorization"))


def admin_only(request: Request, services: Served) -> None:
    services.keys.check_admin(request.headers.get("authorization"))
