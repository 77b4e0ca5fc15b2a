"""What an engine tells of itself at `/duet/identity`, as far as speech needs it."""

from __future__ import annotations

import msgspec

from gateway.transport.port import Reply

IDENTITY = "/duet/identity"


class Identity(msgspec.Struct, frozen=True):
    """`channel` is where what the engine computes is pulled from (`common.channel`), `speakers` are a Talker's."""

    channel: str | None = None
    speakers: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(Identity).decode


def identity_of(reply: Reply) -> Identity:
    """An empty one for an engine that has none: stock vLLM answers with 404."""
    if reply.status != 200:
        return Identity()
    try:
        return _decode(reply.body)
    except msgspec.DecodeError:
        return Identity()
