"""What an engine tells of itself at `/duet/identity`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from common.errors import DuetError
from gateway.transport.port import Reply

IDENTITY = "/duet/identity"


def told_by(reply: Reply) -> Mapping[str, Any] | None:
    """All that it tells; None for an engine that has no such page."""
    if reply.status != 200:
        return None
    try:
        found = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def kv_engine_of(told: Mapping[str, Any] | None) -> str | None:
    """The name of its KV connector, which handoffs must bear; None where it tells none."""
    name = (told or {}).get("engine_id")
    return name if isinstance(name, str) and name else None


def speakers_of(told: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A Talker's voices, the default first; none where it does not tell them, or not as a list of names."""
    names = (told or {}).get("speakers")
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def channel_of(told: Mapping[str, Any] | None) -> str | None:
    """Where what it computes is pulled from, the address of a producer (`common.channel`); None where it tells none.
    Raises ValueError, saying why, for one that no stream can be pulled from, and where none could be asked for."""
    channel = (told or {}).get("channel")
    if channel is None:
        return None
    try:
        from common.channel.reference import Key, Reference  # needs pyzmq, of duet[audio]: only where there is speech

        if isinstance(channel, str):
            Reference.within(channel, Key("request", "stage"))
            return channel
    except ImportError as e:
        raise ValueError(f"speech needs {e.name}: install duet[audio]") from None
    except DuetError:
        pass
    shown = msgspec.json.encode(channel).decode()
    raise ValueError(
        f"it tells channel {shown:.80}; expected duet+ipc:///path, 100 bytes at most, or duet+tcp://host:port"
    )
