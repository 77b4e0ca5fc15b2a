"""Who may call what. Keys are compared in constant time and never logged."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from common.errors import Forbidden, Unauthorized


class Keys:
    """Client keys for `/v1`, and one admin key for `/admin`.

    | keys that are set | `/v1` | `/admin`, reading | `/admin`, changing |
    | --- | --- | --- | --- |
    | none | open | open | open |
    | clients' | a client's | a client's | nobody's |
    | the admin's | open | the admin's | the admin's |
    | both | a client's | the admin's | the admin's |
    """

    def __init__(self, clients: Sequence[str], admin: str | None = None) -> None:
        self._clients = [key.encode() for key in clients]
        self._admin = admin.encode() if admin is not None else None

    @property
    def admin_wants(self) -> str | None:
        """Whose key reading `/admin` takes: `admin` or `client`; None where it is open."""
        return "admin" if self._admin is not None else "client" if self._clients else None

    def check_client(self, authorization: str | None) -> None:
        """Raises Unauthorized unless the header is `Bearer <a client key>`, or there are none."""
        if self._clients and not _is_one_of(self._clients, _given(authorization)):
            raise Unauthorized("the API key is not known here")

    def check_admin(self, authorization: str | None, *, changes: bool) -> None:
        """Raises Unauthorized without a known key, and Forbidden with a client's where it does not do."""
        if self._admin is None and not self._clients:
            return
        given = _given(authorization)
        if self._admin is not None and _is_one_of([self._admin], given):
            return
        if not _is_one_of(self._clients, given):
            raise Unauthorized("the admin key is not known here")
        if self._admin is not None:
            raise Forbidden("this is a client's key; the admin endpoints want the admin key")
        if changes:
            raise Forbidden(
                "a client's key may look, but change nothing: this gateway has no admin key (DUET_ADMIN_KEY)"
            )


def _given(authorization: str | None) -> bytes:
    if authorization is None:
        raise Unauthorized("no API key: expected a header `Authorization: Bearer <key>`")
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized(f"the Authorization header has the scheme {scheme[:20]!r}; expected `Bearer <key>`")
    return given.strip().encode("latin-1", "replace")


def _is_one_of(keys: Sequence[bytes], given: bytes) -> bool:
    """All are compared, so that the time tells nothing."""
    found = [hmac.compare_digest(key, given) for key in keys]
    return any(found)
