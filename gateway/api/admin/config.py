"""Settings as this replica resolved them from flags, environment and file. No secret is told, nor its length."""

from __future__ import annotations

from enum import Enum
from typing import Any

from fastapi import APIRouter
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from gateway.api.admin.described import CONFIG, answers
from gateway.api.services import Served
from gateway.settings import Settings

router = APIRouter()


@router.get("/config", responses=answers(CONFIG))
async def config(services: Served) -> dict[str, Any]:
    """Every setting, in the order of `.env.example`: what it is, whether it is the default. Of a secret only whether it
    is set."""
    return {"replica": services.replica, "settings": resolved(services.settings)}


def resolved(settings: Settings) -> list[dict[str, Any]]:
    found = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        default = None if field.default is PydanticUndefined else field.default
        secret = "SecretStr" in str(field.annotation)
        found.append(
            {
                "name": name,
                "environment": f"DUET_{name.upper()}",
                "value": _hidden(value) if secret else _plain(value),
                "secret": secret,
                "default": value == default,
                "description": field.description,
            }
        )
    return found


def _hidden(value: SecretStr | tuple[SecretStr, ...] | None) -> str | None:
    """Which of them is set is no secret, so that an operator sees that a key arrived."""
    if isinstance(value, tuple):
        return f"{len(value)} set" if value else None
    return "set" if value is not None else None


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value
