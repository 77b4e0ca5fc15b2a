"""How deep and wide a body may be, and that its bytes are read once: what is quadratic takes hours at these sizes."""

from __future__ import annotations

import pytest

from common.errors import MalformedBody
from gateway.wire import EventStream
from gateway.wire.shape import MAX_DEPTH, MAX_NESTED, check_shape

BRACKETS = b"[]" * (MAX_DEPTH + 1)
"""More of them than may be nested, so that they are looked at."""
LONG = 2**21


@pytest.mark.parametrize(
    "hostile",
    [
        b'"' + b'\\"' * LONG,
        b'"' + b"\\\\" * LONG,
        b'"' + b'\\"' * LONG + b"\\",
        b'"' * LONG + b"\\",
        b'"\\' * LONG,
        b'\\"' * LONG,
        b'"' + b"\n" * LONG,
        b'"a\\n' * LONG,
    ],
    ids=lambda body: repr(body[:6]),
)
def test_a_string_without_end_is_read_once(hostile: bytes) -> None:
    check_shape(BRACKETS + hostile)


@pytest.mark.parametrize("left", ["[", "{", "[{", "{["])
@pytest.mark.parametrize("behind", [b"", b'"', b'"\\', b']"]]'])
def test_what_is_too_deep_is_refused_whatever_comes_behind(left: str, behind: bytes) -> None:
    with pytest.raises(MalformedBody, match=f"too deeply; expected at most {MAX_DEPTH} levels"):
        check_shape((left * (MAX_DEPTH + 1)).encode() + behind)


@pytest.mark.parametrize("end", [b'"', b'\\""', b'\\\\"', b'\\\\\\""'])
def test_brackets_in_strings_do_not_count(end: bytes) -> None:
    check_shape(b"[" * MAX_DEPTH + b'"' + b"[" * 1000 + end + b"]" * MAX_DEPTH)
    with pytest.raises(MalformedBody, match="too deeply"):
        check_shape(b"[" * MAX_DEPTH + b'"' + b"[" * 1000 + end + b"[]")


def test_many_beside_each_other_are_not_deep() -> None:
    check_shape(b"[" + b"[{}]," * (MAX_NESTED // 2 - 1) + b"1]")
    with pytest.raises(MalformedBody, match=f"expected at most {MAX_NESTED}"):
        check_shape(b"[" + b"[{}]," * (MAX_NESTED // 2) + b"1]")


@pytest.mark.parametrize("piece", [b"x", b"\n", b"\r\n:", b"data:\n"])
def test_an_event_without_end_is_kept_and_not_read_again(piece: bytes) -> None:
    stream = EventStream("e:1")
    fed = b"".join([stream.feed(part) for part in [b"data: ", *([piece] * (LONG // 8))]])
    assert len(fed) <= len(piece) * (LONG // 8) + 6


def test_many_events_in_one_piece_are_each_read_once() -> None:
    stream, events = EventStream("e:1"), b'data: {"usage":{}}\n\n' * (LONG // 64)
    assert stream.feed(events[:-1]) + stream.feed(events[-1:]) == events
