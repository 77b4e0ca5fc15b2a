"""Decode's stream: what passes, what is put right, and when."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import EngineBroken, EngineRefused
from gateway.wire import EventStream
from gateway.wire.choices import FAILED_ENDS

USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
NASTY = [
    "error",
    "abort",
    "usage",
    "[DONE]",
    "kv_transfer_params",
    '"error"',
    '{"error": {"message": "x"}}',
    '"finish_reason": "error"',
    '"kv_transfer_params": null',
    "data: [DONE]\n\n",
    "\r\n\r\n",
    '\\"error\\"',
    "\u2028\u2029\x85",
    "é😀",
]


def event(chunk: dict[str, Any], end: str = "\n", *, ascii_only: bool = False) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=ascii_only)}{end * 2}".encode()


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **more}


def read(stream: bytes) -> list[str]:
    """The data of each event, as a client reads it: a line ends with CR LF, LF or CR, an event with an empty line."""
    events: list[str] = []
    data: list[str] = []
    for line in re.split("\r\n|\n|\r", stream.decode()):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            events.append("\n".join(data))
            data = []
    assert not data, "the last event has no end"
    return events


def fed(chunks: Iterable[bytes]) -> tuple[EventStream, bytes]:
    stream = EventStream("e:1")
    return stream, b"".join([stream.feed(c) for c in chunks])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


texts = st.text() | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY), max_size=3).map("".join)
places = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(texts, max_size=5), places, st.booleans())
def test_whatever_a_model_says_passes_unharmed(said: list[str], at: list[int], ascii_only: bool) -> None:
    whole = b"".join(event(chunk(text), ascii_only=ascii_only) for text in said) + b"data: [DONE]\n\n"
    stream, out = fed(cut(whole, at))
    assert out == whole
    assert stream.done
    assert stream.error is None


@given(
    st.lists(st.tuples(texts, st.booleans()), max_size=5),
    places,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", ": ping\n\n", ":\r\n\r\n", "\n", "event: x\nid: 7\n"]),
)
def test_only_what_is_the_engines_business_is_taken_out(
    said: list[tuple[str, bool]], at: list[int], end: str, between: str
) -> None:
    events = [chunk(text, **({"kv_transfer_params": {"remote_host": "h"}} if ours else {})) for text, ours in said]
    whole = b"".join(between.encode() + event(e, end) for e in events) + f"data: [DONE]{end * 2}".encode()
    stream, out = fed(cut(whole, at))
    expected = [chunk(text) for text, _ in said]
    *chunks, last = read(out)
    assert [json.loads(data) for data in chunks] == expected
    assert last == "[DONE]"
    assert stream.done
    assert stream.error is None


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n", "\r\n\n"])
def test_an_event_leaves_as_soon_as_its_end_is_there(end: str) -> None:
    stream = EventStream("e:1")
    one, two = b'data: {"a":1}', b'data: {"b":2}'
    assert stream.feed(one) == b""
    assert stream.feed(end.encode()) == one + end.encode()
    assert stream.feed(two + end.encode() + one) == two + end.encode()
    assert stream.feed(end.encode()) == one + end.encode()


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n", "\r\n\n"])
def test_an_end_may_come_in_pieces_with_the_next_event_behind_it(end: str) -> None:
    one, two = b'data: {"a":1}', b'data: {"b":2}'
    whole = one + end.encode() + two
    for at in range(len(one), len(one) + len(end)):
        stream = EventStream("e:1")
        out = stream.feed(whole[:at]) + stream.feed(whole[at:])
        assert whole.startswith(out)
        assert read(out) == ['{"a":1}']


def test_empty_lines_more_than_needed_are_passed_on() -> None:
    sent = event(chunk("a", usage=USAGE)) + b"\n\n\n" + event(chunk("b", usage=USAGE)) + b"\n"
    assert fed([sent])[1] == sent


def test_byte_by_byte() -> None:
    whole = event(chunk("a")) + event(chunk("é")) + b"data: [DONE]\n\n"
    stream = EventStream("e:1")
    pieces = [stream.feed(whole[i : i + 1]) for i in range(len(whole))]
    assert [piece for piece in pieces if piece] == [event(chunk("a")), event(chunk("é")), b"data: [DONE]\n\n"]


def test_a_chunk_of_whole_events_is_not_copied() -> None:
    data = event(chunk("a")) * 3
    assert EventStream("e:1").feed(data) is data


def test_nothing_comes_after_done() -> None:
    stream = EventStream("e:1")
    assert stream.feed(b'data: {"a":1}\n\ndata: [DONE]\n\ndata: {"b":2}\n\n') == b'data: {"a":1}\n\ndata: [DONE]\n\n'
    assert stream.done
    assert stream.feed(event(chunk("late"))) == b""


def test_done_without_the_space_is_done() -> None:
    stream = EventStream("e:1")
    stream.feed(b"data:[DONE]\n\n")
    assert stream.done


def test_a_stream_that_ends_early_is_not_done() -> None:
    stream, out = fed([event(chunk("a")), b"data: [DONE]\n"])
    assert out == event(chunk("a"))
    assert not stream.done


@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
@pytest.mark.parametrize("value", [None, {"remote_host": "10.0.0.1"}])
def test_the_rest_of_a_changed_event_stays_the_bytes_that_came(name: str, value: Any) -> None:
    sent = f'data: {{"x": 1.0,"{name}":{json.dumps(value)}, "choices": [ ], "y":"\\u00e9"}}\n\n'.encode()
    assert fed([sent])[1] == b'data: {"x":1.0,"choices":[ ],"y":"\\u00e9"}\n\n'


def test_other_lines_of_a_changed_event_stay() -> None:
    sent = b'id: 7\r\ndata: {"a":1,\r\ndata: "kv_transfer_params":null}\r\nretry: 5\r\n\r\n'
    assert fed([sent])[1] == b'id: 7\nretry: 5\ndata: {"a":1}\n\n'


@pytest.mark.parametrize("colon", [":", ": ", " :\t", ":\ndata: "])
def test_the_last_usage_is_kept_and_passed_on(colon: str) -> None:
    first, last = {**USAGE, "completion_tokens": 0}, {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}}
    events = [f'data: {{"choices":[],"usage"{colon}{json.dumps(usage)}}}\n\n'.encode() for usage in (first, last)]
    events += [event(chunk("x", usage=None)), b"data: [DONE]\n\n"]
    stream, out = fed(events)
    assert stream.usage == last
    assert out == b"".join(events)


def test_no_usage() -> None:
    assert fed([event(chunk("usage", usage=None)), event({"usage": 3}), b"data: [DONE]\n\n"])[0].usage is None


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            {"message": "KV load failed", "type": "InternalServerError", "param": None, "code": 500},
            500,
            "KV load failed",
        ),
        ({"message": "no", "code": 400}, 400, "no"),
        ({"message": "m"}, 500, "m"),
        ("text", 500, "text"),
        ({}, 500, "engine e:1 answered with status 500"),
    ],
)
def test_an_error_event_is_held_back_and_told(error: Any, status: int, message: str) -> None:
    sent = event(chunk("a")) + event({"error": error}) + b"data: [DONE]\n\n"
    stream, out = fed([sent])
    assert out == event(chunk("a"))
    assert isinstance(stream.error, EngineRefused)
    assert (stream.error.status, stream.error.message, stream.error.engine) == (status, message, "e:1")
    assert not stream.done
    assert stream.feed(event(chunk("late"))) == b""


OLD = {"object": "error", "message": "old", "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (event(OLD), 400, "old"),
        (event({**OLD, "code": 500, "error": None}), 500, "old"),
        (event({"object": "error"}), 500, "engine e:1 answered with status 500"),
        (b"event: error\n" + event({"error": {"message": "m", "code": 404}}), 404, "m"),
        (b"event:error\r\n" + event(OLD, "\r\n"), 400, "old"),
        (b"event: error\r" + event({"message": "m", "code": 503}, "\r"), 503, "m"),
        (event({"detail": "d"})[:-1] + b"event: error\n\n", 500, "d"),
        (b"id: 7\nevent: error\ndata: it broke\n\n", 500, "it broke"),
        (b"event: error\ndata: \xff\n\n", 500, "\ufffd"),
        (b"event: error\n\n", 500, "engine e:1 answered with status 500"),
        (b"event: error\ndata:\n\n", 500, "engine e:1 answered with status 500"),
        (b"event: error\n" + event({"error": None}), 500, "engine e:1 answered with status 500"),
        (b"event: error\n" + event({"error": {"message": "key", "code": 401}}), 502, "engine e:1 refused the gateway"),
    ],
)
def test_an_error_is_one_in_whatever_shape(sent: bytes, status: int, message: str) -> None:
    for chunks in ([event(chunk("a")) + sent + event(chunk("late"))], cut(event(chunk("a")) + sent, list(range(200)))):
        stream, out = fed(chunks)
        assert out == event(chunk("a"))
        assert stream.error is not None
        assert (stream.error.status, stream.error.message[: len(message)]) == (status, message)
        assert not stream.done


@pytest.mark.parametrize(
    "fine",
    [
        event(chunk("x", object="text_completion", usage=USAGE)),
        b"event: message\n" + event(chunk("event: error")),
        event(chunk("a\nevent: error\n")),
        event({"x": {"object": "error"}}),
        b": event: error\n" + event(chunk("a")),
        b"event: errors\n" + event(chunk("a")),
    ],
)
def test_what_only_looks_like_an_error_is_none(fine: bytes) -> None:
    stream, out = fed([fine])
    assert (out, stream.error) == (fine, None)


ERROR = {"error": {"message": "m", "code": 400}}


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (json.dumps(ERROR).encode(), 400, "m"),
        (json.dumps(ERROR, indent=2).encode() + b"\n", 400, "m"),
        (json.dumps(ERROR).encode() + b"\n\n", 400, "m"),
        (json.dumps(OLD).encode(), 400, "old"),
        (event(ERROR)[:-1], 400, "m"),
        (event(chunk("a")) + event(ERROR)[:-2], 400, "m"),
        (event(chunk("a")) + event({"choices": [{"finish_reason": "error"}]})[:-2], 502, "engine e:1 ended the answer"),
        (json.dumps({"error": {"message": "k", "code": 403}}).encode(), 502, "engine e:1 refused the gateway"),
        (json.dumps(chunk("a")).encode(), 502, "engine e:1 ended its stream without [DONE]"),
        (event(chunk("a")) + event(chunk("b"))[:-9], 502, "engine e:1 ended its stream without [DONE]"),
        (event(chunk("a")), 502, "engine e:1 ended its stream without [DONE]"),
        (b"Internal Server Error", 502, "engine e:1 ended its stream without [DONE]"),
        (b"[" * 100_000, 502, "engine e:1 ended its stream without [DONE]"),
        (b"", 502, "engine e:1 ended its stream without [DONE]"),
    ],
)
def test_a_stream_that_is_over_too_soon_may_have_been_an_error(sent: bytes, status: int, message: str) -> None:
    for chunks in ([sent], cut(sent, list(range(200)))):
        stream, _ = fed(chunks)
        assert not stream.done
        assert not stream.complete
        told = stream.broken_off
        assert (told.status, told.message[: len(message)]) == (status, message)


@pytest.mark.parametrize("reason", sorted(FAILED_ENDS))
def test_a_failed_end_is_an_error(reason: str) -> None:
    bad = {"choices": [{"index": 0, "finish_reason": None}, {"index": 1, "finish_reason": reason}]}
    stream, out = fed([event(bad)])
    assert out == b""
    assert isinstance(stream.error, EngineBroken)
    assert f"finish_reason {reason}" in stream.error.message


@pytest.mark.parametrize(
    "odd",
    [
        b'data: "error"\n\n',
        b'data: {"choices": "error"}\n\n',
        b'data: {"choices": [{"finish_reason": 3}], "x": "error"}\n\n',
        b'data: {"error": null, "choices": []}\n\n',
        b'data: ["kv_transfer_params"]\n\n',
        b'event: ping\ndata: "usage"\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":1e999}}\n\n',
        b': "error"\n\n',
        b'{"error": 1}\n\n',
        b"\n\n",
        b"data:\n\n",
        b"data: 5\n\n",
    ],
)
def test_what_is_not_understood_is_passed_on(odd: bytes) -> None:
    stream, out = fed([odd])
    assert out == odd
    assert stream.error is None


@pytest.mark.parametrize(
    "corrupt",
    [
        b'{"error": ',
        b'{"choices": [{"delta": {"content": "half',
        b'{"choices": [{"delta": {"content": "a"}, "finish_reason": tru}]}',
        b'{"choices": [{"delta": {"content": 3}}]} 3}',
        b'{"choices": 7, "x": nul}',
        b"ping",
        b'{"x":"\xff\xfe","y":"error"}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:40]),
)
@pytest.mark.parametrize("before", [b"", event(chunk("a")), event(chunk("a", usage=USAGE))])
def test_an_event_that_is_no_json_is_the_engines_failure_at_once(corrupt: bytes, before: bytes) -> None:
    stream, out = fed([before + b"data: " + corrupt + b"\n\n" + event(chunk("late"))])
    assert out == before, "what was good before it stays"
    assert isinstance(stream.error, EngineBroken)
    assert "no JSON" in stream.error.message
    assert len(stream.error.message) < 300
    assert stream.feed(event(chunk("later"))) == b""


CONTENT = [
    event(chunk("a")),
    event(chunk("")),
    event({"choices": [{"index": 0, "text": "", "finish_reason": None}]}),
    event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
    event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}),
    event({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}),
    b": ping\n\n" + event(chunk("a")),
    event(chunk("a"), "\r"),
]
NO_CONTENT = [
    b": keep-alive\n\n",
    b"\n\n",
    b"event: ping\ndata: {}\n\n",
    b"data:\n\n",
    event({"type": "ping"}),
    event({"choices": []}),
    event({"choices": [], "usage": USAGE}),
    event({"choices": [{"index": 0, "delta": {}}]}),
    event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}),
    b'data: {"choices": "odd"}\n\n',
    b"data: [DONE]\n\n",
    event(chunk("half an event"))[:-4],
]


@pytest.mark.parametrize(("sent", "spoke"), [*((s, True) for s in CONTENT), *((s, False) for s in NO_CONTENT)])
def test_content_is_told_from_what_only_keeps_a_connection_alive(sent: bytes, spoke: bool) -> None:
    stream = EventStream("e:1")
    stream.feed(sent)
    assert (stream.spoke, stream.answered) == (spoke, spoke)
    stream.feed(b": and then nothing\n")
    assert (stream.spoke, stream.answered) == (False, spoke)


def test_an_event_without_end_is_refused() -> None:
    stream = EventStream("e:1", max_event=1000)
    assert stream.feed(b"data: {}\n\ndata: " + b"x" * 990) == b"data: {}\n\n"
    with pytest.raises(EngineBroken, match="engine e:1 sent an event of more than 1000 bytes"):
        stream.feed(b"x" * 10)


def test_many_long_events_are_no_long_event() -> None:
    stream = EventStream("e:1", max_event=1000)
    data = b'data: "' + b"x" * 900 + b'"\n\n'
    assert b"".join(stream.feed(piece) for piece in cut(data * 20, list(range(0, 18_000, 700)))) == data * 20
