"""What commands that call a gateway share: the key, and how a refusal is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8000"
CONNECT_WITHIN = 5.0


class Refused(Exception):
    """What the server said instead of an answer."""


def authorization(key: str | None) -> dict[str, str]:
    """The variable may hold several keys, as the gateway's own does: any of them will do."""
    keys = (key or "").replace(",", " ").split()
    return {"authorization": f"Bearer {keys[0]}"} if keys else {}


def expect_ok(reply: httpx.Response) -> None:
    """Raises Refused with the message of OpenAI's error body, or with what else there is."""
    if reply.status_code == 200:
        return
    try:
        message = reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = reply.text.strip()[:200] or reply.reason_phrase
    raise Refused(f"{reply.status_code}: {message}")
