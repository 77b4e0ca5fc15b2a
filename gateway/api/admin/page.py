"""`/admin/ui`: the page, served as the files it is made of. It holds no secret: what it shows it asks the API for.

Its policy lets the browser load nothing from elsewhere, run nothing that is not a file of ours, and send what it knows
to nobody but this server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from common.errors import Forbidden, NotFound, Unauthorized
from gateway.api.services import Served

router = APIRouter(include_in_schema=False)

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Every file of the page, by its name."""
    found = {}
    for file in files("gateway.admin_ui").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, kind, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')
    return found


@router.get("/ui")
async def page(request: Request) -> Response:
    return _answer("index.html", request)


@router.get("/ui/")
async def slashed() -> Response:
    """The page's links are relative to `/admin/`, so that it works behind a proxy's prefix."""
    return RedirectResponse("../ui", status_code=308, headers=HEADERS)


@router.get("/ui/access")
async def access(request: Request, services: Served) -> Response:
    """Which key is wanted, and what the one that was sent may do: the page asks for a key before it is refused."""
    keys, may, why = services.keys, "nothing", None
    try:
        keys.check_admin(request.headers.get("authorization"), changes=False)
        may = "look"
        keys.check_admin(request.headers.get("authorization"), changes=True)
        may = "change"
    except (Unauthorized, Forbidden) as e:
        why = e.message
    return JSONResponse({"wants": keys.admin_wants, "may": may, "why": why}, headers=HEADERS)


@router.get("/ui/{name}")
async def asset(name: str, request: Request) -> Response:
    return _answer(name, request)


def _answer(name: str, request: Request) -> Response:
    found = assets().get(name)
    if found is None:
        raise NotFound(f"the admin page has no file {name!r:.100}")
    headers = {**HEADERS, "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)
