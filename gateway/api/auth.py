"""Who may call what. Keys are compared in constant time and never logged."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from common.errors import Unauthorized


class Keys:
    """Client keys for `/v1`, and one admin key. Without client keys `/v1` is open; without an admin key the admin
    endpoints take a client key."""

    def __init__(self, clients: Sequence[str], admin: str | None = None) -> None:
        self._clients = [key.encode() for key in clients]
        self._admin = [admin.encode()] if admin is not None else self._clients

    def check_client(self, authorization: str | None) -> None:
        """Raises Unauthorized unless the header is `Bearer <a client key>`, or there are none."""
        _check(self._clients, authorization)

    def check_admin(self, authorization: str | None) -> None:
        """Raises Unauthorized unless the header is `Bearer <the admin key>`."""
        _check(self._admin, authorization)


def _check(keys: Sequence[bytes], authorization: str | None) -> None:
    if not keys:
        return
    if authorization is None:
        raise Unauthorized("no API key: expected a header `Authorization: Bearer <key>`")
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized(f"the Authorization header has the scheme {scheme[:20]!r}; expected `Bearer <key>`")
    found = [hmac.compare_digest(key, given.strip().encode("latin-1", "replace")) for key in keys]
    if not any(found):
        raise Unauthorized("the API key is not known here")
