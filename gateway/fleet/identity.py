"""What an engine tells of itself at `/duet/identity`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.transport.port import Reply

IDENTITY = "/duet/identity"


class Identity(msgspec.Struct, frozen=True):
    """What speech needs of it: `channel` is where what the engine computes is pulled from (`common.channel`),
    `speakers` are a Talker's."""

    channel: str | None = None
    speakers: tuple[str, ...] = ()


def told_by(reply: Reply) -> Mapping[str, Any] | None:
    """All that it tells; None for an engine that has no such page."""
    if reply.status != 200:
        return None
    try:
        found = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


_decode = msgspec.json.Decoder(Identity).decode


def kv_engine_of(told: Mapping[str, Any] | None) -> str | None:
    """The name of its KV connector, which handoffs must bear; None where it tells none."""
    name = (told or {}).get("engine_id")
    return name if isinstance(name, str) and name else None


def identity_of(reply: Reply) -> Identity:
    """An empty one for an engine that has none: stock vLLM answers with 404."""
    if reply.status != 200:
        return Identity()
    try:
        return _decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return Identity()
