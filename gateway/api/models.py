"""The model list, as OpenAI clients expect it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from common.errors import ModelNotFound
from gateway.api.services import Served, Services, client_only

router = APIRouter(prefix="/v1", tags=["models"], dependencies=[Depends(client_only)])


@router.get("/models")
async def models(services: Served) -> dict[str, Any]:
    """Every model that an engine serves, with its longest context where engines tell."""
    return {"object": "list", "data": [_card(services, name) for name in sorted(services.fleet.models())]}


@router.get("/models/{name:path}")
async def model(name: str, services: Served) -> dict[str, Any]:
    if name not in services.fleet.models():
        raise ModelNotFound(f"The model `{name}` does not exist.", param="model")
    return _card(services, name)


def _card(services: Services, name: str) -> dict[str, Any]:
    card: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": int(services.started_at),
        "owned_by": "duet",
    }
    length = services.fleet.models()[name]
    if length is not None:
        card["max_model_len"] = length
    return card
