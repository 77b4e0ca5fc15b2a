"""What an engine tells of itself at `/duet/identity`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from common.errors import DuetError
from gateway.transport.port import Reply

IDENTITY = "/duet/identity"
_NOTHING = msgspec.Raw(b"null")


class Identity(msgspec.Struct, frozen=True):
    """What speech needs of it: `channel` is where what the engine computes is pulled from, in its own words
    (`channel_of`), `speakers` are a Talker's."""

    channel: msgspec.Raw = _NOTHING
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


def channel_of(told: Identity) -> str | None:
    """The address of its producer (`common.channel`); None where it tells none. Raises ValueError, saying why, for one
    that no stream can be pulled from, and where none could be asked for."""
    try:
        channel = msgspec.json.decode(told.channel, type=str | None)
        if channel is None:
            return None
        from common.channel.reference import Key, Reference  # needs pyzmq, of duet[audio]: only where there is speech

        Reference.within(channel, Key("request", "stage"))
    except ImportError as e:
        raise ValueError(f"speech needs {e.name}: install duet[audio]") from None
    except (DuetError, msgspec.DecodeError):
        shown = bytes(told.channel).decode(errors="replace")
        raise ValueError(
            f"it tells channel {shown:.80}; expected duet+ipc:///path, 100 bytes at most, or duet+tcp://host:port"
        ) from None
    return channel
