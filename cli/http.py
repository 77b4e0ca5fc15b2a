"""What commands that call a gateway share: the key, the connection, and how a refusal is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from cli.errors import complain

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8000"
CONNECT_WITHIN = 5.0
MOST = 64 * 2**20
"""Bytes of one answer."""


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


def get(client: httpx.Client, path: str, *, within: float, **params: Any) -> httpx.Response:
    """One answer, whole. Raises Refused for one that is not there within so many seconds, or has no end."""
    import httpx

    until, body = time.monotonic() + within, bytearray()
    with client.stream("GET", path, params=params) as reply:
        for part in reply.iter_bytes():
            body += part
            if len(body) > MOST or time.monotonic() > until:
                raise Refused(f"{reply.url} did not end within {within:g} s and {MOST} bytes")
    return httpx.Response(reply.status_code, content=bytes(body), request=reply.request)


@contextmanager
def calling(url: str, key: str | None, *, silent_for: float) -> Iterator[httpx.Client]:
    """A client for the gateway, for a command: what goes wrong is told in one line, and the command ends with 1 (130
    after Ctrl-C). `silent_for` in seconds bounds each wait for an answer."""
    import httpx

    timeout = httpx.Timeout(silent_for, connect=CONNECT_WITHIN)
    try:
        with httpx.Client(base_url=url, headers=authorization(key), timeout=timeout) as client:
            yield client
    except Refused as e:
        complain(str(e))
        raise typer.Exit(1) from None
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        complain(f"{url}: {e or type(e).__name__}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
