"""Health: `/livez` says the process runs, `/readyz` that it can serve, `/health` is what probes of other routers ask.

A load balancer takes a gateway out by `/readyz`; an orchestrator restarts it by `/livez`, which needs nobody else.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from common.engine import Role
from common.errors import StoreUnavailable
from gateway.api.services import Served

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> dict[str, str]:
    return {"status": "alive"}


@router.get("/readyz", responses={503: {"description": "Not ready; `checks` says why"}})
async def readyz(services: Served) -> JSONResponse:
    """200 if the store answers and at least one prefill and one decode engine can be routed to, else 503."""
    checks = {
        "store": await _store(services),
        "prefill": "ok" if services.fleet.routable(Role.PREFILL) else "no prefill engine is routable",
        "decode": "ok" if services.fleet.routable(Role.DECODE) else "no decode engine is routable",
    }
    ready = all(value == "ok" for value in checks.values())
    return JSONResponse(
        {"status": "ready" if ready else "not ready", "checks": checks}, status_code=200 if ready else 503
    )


@router.get("/health", responses={503: {"description": "Not ready; `checks` says why"}})
async def health(services: Served) -> JSONResponse:
    """The same as `/readyz`."""
    return await readyz(services)


async def _store(services: Served) -> str:
    try:
        await services.store.ping()
    except StoreUnavailable as e:
        return e.message
    return "ok"


for _path, _endpoint in (("/livez", livez), ("/readyz", readyz), ("/health", health)):
    router.add_api_route(_path, _endpoint, methods=["HEAD"], include_in_schema=False)  # some probes ask so
