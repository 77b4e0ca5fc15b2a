"""The channel's messages, to and from the parts of a ZeroMQ message.

| message | parts after the verb |
| --- | --- |
| PULL, consumer to producer | JSON: request, stage, `start` (first index wanted), `credit` (frames that may come) |
| MORE, consumer to producer | JSON: request, stage, `credit` (frames that may come beside those already allowed) |
| DROP, consumer to producer | JSON: request, stage, `release` (whether the rows may go) |
| FRAME, producer to consumer | JSON: `index`, and dtype and shape by name; then one part an array |
| END, producer to consumer | JSON: `frames`, `reason`, `detail` |
| WAIT, producer to consumer | nothing: it is here, and has nothing new |

A part that is longer than `MAX_ASKED`, to a producer, or `MAX_TOLD`, to a consumer, ends its connection. The consumer
then hears nothing more, and says that its producer is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from common.channel.errors import ChannelError
from common.channel.frame import Frame, Rows
from common.channel.reference import Key
from common.channel.streams import End, Limits
from common.strict import json_object

PULL, MORE, DROP, FRAME, END, WAIT = b"PULL", b"MORE", b"DROP", b"FRAME", b"END", b"WAIT"
Part = bytes | memoryview

MAX_ASKED = 64 * 2**10
"""Bytes. Two names of `MAX_NAME` and some numbers have 13 KB, however they are escaped."""
MAX_TOLD = Limits().stream_bytes
"""Bytes. No array is larger than its stream may be."""
MOST_CREDIT = 4096
"""Frames that a consumer may allow at one time; more is cut to this."""


@dataclass(frozen=True, slots=True)
class Pull:
    key: Key
    start: int
    credit: int


@dataclass(frozen=True, slots=True)
class More:
    key: Key
    credit: int


@dataclass(frozen=True, slots=True)
class Drop:
    key: Key
    release: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing new."""


Message = Pull | More | Drop | Frame | End | Wait


def to_parts(message: Message) -> list[Part]:
    """A frame's arrays are the buffers that it has, not copies."""
    match message:
        case Pull(key, start, credit):
            return [PULL, _json({**asdict(key), "start": start, "credit": credit})]
        case More(key, credit):
            return [MORE, _json({**asdict(key), "credit": credit})]
        case Drop(key, release):
            return [DROP, _json({**asdict(key), "release": release})]
        case Frame(index, rows):
            kinds = {name: [array.dtype, array.shape] for name, array in rows.items()}
            return [FRAME, _json({"index": index, "rows": kinds}), *(array.data for array in rows.values())]
        case End():
            return [END, _json(asdict(message))]
        case Wait():
            return [WAIT]


def from_parts(parts: Sequence[Part]) -> Message:
    """Raises ChannelError for what is none of these."""
    try:
        verb, *rest = parts
        match bytes(verb):
            case b"PULL":
                told = _told(rest[0])
                return Pull(_key(told), _count(told["start"]), _count(told["credit"]))
            case b"MORE":
                told = _told(rest[0])
                return More(_key(told), _count(told["credit"]))
            case b"DROP":
                told = _told(rest[0])
                return Drop(_key(told), bool(told["release"]))
            case b"FRAME":
                told = _told(rest[0])
                kinds = zip(told["rows"].items(), rest[1:], strict=True)
                rows = {
                    name: Rows.of(dtype, tuple(map(_count, shape)), buffer) for (name, (dtype, shape)), buffer in kinds
                }
                return Frame(_count(told["index"]), rows)
            case b"END":
                told = _told(rest[0])
                return End(_count(told["frames"]), str(told["reason"]), str(told["detail"]))
            case b"WAIT":
                return Wait()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as e:
        raise ChannelError(f"channel message of {len(parts)} parts cannot be read: {type(e).__name__}: {e}") from None
    raise ChannelError(f"channel message {bytes(verb)[:16]!r}: expected PULL, MORE, DROP, FRAME, END or WAIT")


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _told(part: Part) -> dict[str, Any]:
    return json_object(bytes(part).decode())


def _key(told: dict[str, Any]) -> Key:
    return Key.read(str(told["request"]), str(told["stage"]))


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r}: expected a whole number, 0 or more")
    return value
