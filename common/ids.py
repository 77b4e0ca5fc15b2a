"""Identifiers. A client's own id is only ever echoed; what engines see is unique for each attempt and leg."""

from __future__ import annotations

import secrets
from typing import Protocol


class IdSource(Protocol):
    def request_id(self) -> str:
        """A new id for a request: letters and digits only, unique over all replicas."""
        ...

    def op_id(self) -> str:
        """A new id for one store operation; a repeated write with the same id is a no-op."""
        ...


class RandomIds:
    """96 random bits a request, 64 a store operation."""

    def request_id(self) -> str:
        return secrets.token_hex(12)

    def op_id(self) -> str:
        return secrets.token_hex(8)


def leg_id(request_id: str, attempt: int, leg: str) -> str:
    """What an engine sees as `X-Request-Id`: `<request>-<attempt>-<leg>`, e.g. `9f…-1-prefill`."""
    return f"{request_id}-{attempt}-{leg}"
