"""One engine, and what may be done to it. Orders reach every replica: `gateway/fleet/operator.py`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from common.engine import Role
from common.errors import EngineNotFound
from gateway.api.admin.described import ADDED, ENGINE, ENGINES, REMOVED, answers
from gateway.api.admin.topology import engine_views
from gateway.api.services import Served, Services
from gateway.fleet import Member

router = APIRouter()


class Declared(BaseModel):
    """What the caller says an engine is, in the names of `/duet/identity`. What an engine tells itself must agree."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    revision: str | None = None
    connector: str | None = None
    tensor_parallel_size: int | None = Field(default=None, ge=1)
    block_size: int | None = Field(default=None, ge=1)
    kv_cache_dtype: str | None = None
    vllm_version: str | None = None
    contract_version: int | str | None = None


class NewEngine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2048, description="base URL, as `--prefill` and the like take it")
    role: Role
    identity: Declared = Declared()


@router.get("/engines", responses=answers(ENGINES))
async def engines(services: Served) -> dict[str, Any]:
    """Every engine: identity, health, load, KV usage, breaker, lease."""
    return {
        "replica": services.replica,
        "engines": await engine_views(services, list(services.fleet.members.values())),
    }


@router.post("/engines", status_code=201, responses=answers(ENGINE, 400, 409, 503, status=201))
async def add(
    services: Served, new: Annotated[NewEngine, Body(openapi_examples={"a decode engine": {"value": ADDED}})]
) -> dict[str, Any]:
    """One more engine, on every replica within 2 s; it gets requests once it has passed a health check.

    Refused, with the reason, if it does not fit the engines that are there. An engine that is there already stays as it
    is. It is remembered in Redis, so replicas that start later have it too.
    """
    member = await services.operator.add(new.url, new.role, new.identity.model_dump(exclude_none=True))
    return await _view(services, member)


@router.get("/engines/{engine_id:path}", responses=answers(ENGINE, 404))
async def engine(engine_id: str, services: Served) -> dict[str, Any]:
    """One engine, by its `host:port`."""
    member = services.fleet.members.get(engine_id)
    if member is None:
        raise EngineNotFound(f"engine {engine_id!r:.200} is not of the fleet")
    return await _view(services, member)


@router.post("/engines/{engine_id:path}/drain", responses=answers(ENGINE, 404, 503))
async def drain(engine_id: str, services: Served) -> dict[str, Any]:
    """From now on the engine gets no new request, on every replica within 2 s. What runs on it goes on."""
    return await _view(services, await services.operator.drain(engine_id))


@router.post("/engines/{engine_id:path}/undrain", responses=answers(ENGINE, 404, 503))
async def undrain(engine_id: str, services: Served) -> dict[str, Any]:
    """The engine gets requests again. Of one that is not there now but was drained, only `id` and `draining`."""
    member = await services.operator.undrain(engine_id)
    return {"id": engine_id, "draining": False} if member is None else await _view(services, member)


@router.delete("/engines/{engine_id:path}", responses=answers(REMOVED, 404, 503))
async def remove(engine_id: str, services: Served) -> dict[str, Any]:
    """The engine gets no new request, and leaves the fleet once what runs on it has ended. An engine that settings name
    stays away, also after a restart of the gateway, until it is added again."""
    await services.operator.remove(engine_id)
    return {"id": engine_id, "removed": True, "running": engine_id in services.fleet.members}


async def _view(services: Services, member: Member) -> dict[str, Any]:
    (view,) = await engine_views(services, [member])
    return view
