"""Decode's stream with sound in it: what OpenAI's clients join is what was said and heard."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import DuetError
from gateway.audio import Cutter
from gateway.wire.spoken_stream import SpokenStream

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return b"data: " + json.dumps({**HEAD, "choices": [choice], **more}).encode() + b"\n\n"


ROLE, END = chunk({"role": "assistant", "content": ""}), chunk({"content": ""}, "stop")
TOTAL = b"data: " + json.dumps({**HEAD, "choices": [], "usage": USAGE}).encode() + b"\n\n"
DONE = b"data: [DONE]\n\n"


def events(raw: bytes) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in raw.decode().split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def deltas(raw: bytes) -> list[Any]:
    return [event["choices"][0]["delta"] for event in events(raw) if event != "[DONE]" and event["choices"]]


def stream(**over: Any) -> SpokenStream:
    return SpokenStream("audio_1", **{"include_usage": False, **over})


def test_text_becomes_a_transcript() -> None:
    spoken = stream()
    sent = spoken.text(ROLE + chunk({"content": "Hel"})) + spoken.text(chunk({"content": "lo"}) + END + DONE)
    assert deltas(sent) == [
        {"role": "assistant", "content": None},
        {"content": None, "audio": {"id": "audio_1", "transcript": "Hel"}},
        {"audio": {"transcript": "lo"}},
    ]
    assert spoken.transcript == "Hello"


def test_the_end_waits_for_the_sound() -> None:
    spoken = stream(include_usage=True)
    assert events(spoken.text(ROLE + chunk({"content": "a"}) + END + TOTAL + DONE))[-1]["choices"][0]["delta"]["audio"]
    data, *last = events(spoken.data(b"\1" * 6) + spoken.end(3, expires_at=99))
    assert data == {**HEAD, "choices": [data["choices"][0]], "usage": None}
    assert data["choices"][0]["delta"] == {"audio": {"data": base64.b64encode(b"\1" * 6).decode()}}
    expires, end, usage, done = last
    assert expires["choices"][0]["delta"] == {"audio": {"expires_at": 99}}
    assert (end["choices"][0]["delta"], end["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "completion_tokens_details": {"audio_tokens": 3, "text_tokens": 3},
    }
    assert done == "[DONE]"


def test_a_last_chunk_with_text_in_it_is_parted() -> None:
    spoken = stream()
    (said,) = events(spoken.text(chunk({"content": "all"}, "length")))
    assert said["choices"][0]["finish_reason"] is None
    assert said["choices"][0]["delta"]["audio"] == {"id": "audio_1", "transcript": "all"}
    *_, end, _ = events(spoken.end(0, expires_at=1))
    assert (end["choices"][0]["finish_reason"], end["choices"][0]["delta"]) == ("length", {})


def test_an_answer_without_text_still_has_an_audio() -> None:
    spoken = stream()
    assert spoken.text(END) == b""
    first, second, end, _ = events(spoken.end(0, expires_at=5))
    assert first["choices"][0]["delta"] == {"content": None, "audio": {"id": "audio_1", "transcript": ""}}
    assert second["choices"][0]["delta"] == {"audio": {"expires_at": 5}}
    assert end["choices"][0]["finish_reason"] == "stop"


def test_an_error_comes_behind_the_whole_text() -> None:
    spoken = stream()
    spoken.text(chunk({"content": "a"}) + END)
    end, error, done = events(spoken.end(0, expires_at=None, error=DuetError("lost")))
    assert end["choices"][0]["finish_reason"] == "stop"
    assert error["error"]["message"] == "lost"
    assert done == "[DONE]"


def test_tool_calls_pass_and_are_noticed() -> None:
    call = {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f"}}]}
    spoken = stream()
    assert deltas(spoken.text(chunk({"tool_calls": [], "content": None})))[0] == {"tool_calls": []}
    assert not spoken.calls_tools
    assert deltas(spoken.text(chunk(call)))[0] == call
    assert spoken.calls_tools


@pytest.mark.parametrize("delta", ["null", "[]", "5", '{"content":["a"]}', '{"content":5}'])
def test_a_delta_that_is_none_passes(delta: str) -> None:
    spoken = stream()
    odd = b'data: {"choices":[{"index":0,"delta":%s,"finish_reason":null}]}\n\n' % delta.encode()
    assert spoken.text(odd) == odd
    assert deltas(spoken.text(chunk({"content": "a"})))
    assert spoken.transcript == "a"


@pytest.mark.parametrize("usage", [5, "a", [1]])
def test_usage_that_is_none_is_not_told(usage: Any) -> None:
    spoken = stream()
    spoken.text(chunk({"content": "a"}) + b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    assert spoken.usage(3) is None


def test_what_is_no_chunk_passes() -> None:
    assert stream().text(b"data: hello\n\n") == b"data: hello\n\n"
    assert stream().text(b'data: {"note": 1}\n\n') == b'data: {"note": 1}\n\n'
    assert stream().text(b'data: {"note":\ndata: 1}\n\n') == b'data: {"note":\ndata: 1}\n\n'


def test_a_name_may_look_like_anything() -> None:
    spoken = stream()
    spoken.text(chunk({"content": "a"}, model="~/models/~", id='"data":"~"'))
    (data,) = events(spoken.data(b"\1" * 6))
    assert (data["model"], data["id"]) == ("~/models/~", '"data":"~"')
    assert data["choices"][0]["delta"] == {"audio": {"data": base64.b64encode(b"\1" * 6).decode()}}


@pytest.mark.parametrize("odd", ["3", None, True, 1.5, [1]])
def test_counts_that_are_none_count_as_nothing(odd: Any) -> None:
    spoken = stream()
    usage = {"completion_tokens": odd, "total_tokens": odd}
    spoken.text(b"data: " + json.dumps({**HEAD, "choices": [], "usage": usage}).encode() + b"\n\n")
    told = spoken.usage(4)
    assert told is not None
    assert (told["completion_tokens"], told["total_tokens"]) == (4, 4)


def piece(said: str | None, ids: list[int], logprobs: bool, finish: dict[str, Any], **more: Any) -> bytes:
    """A chunk as vLLM sends it: `token_ids` and `logprobs` of its tokens, a text that may lag behind."""
    told = {"content": [{"token": str(at), "logprob": -0.5, "bytes": None, "top_logprobs": []} for at in ids]}
    choice = {
        "index": 0,
        "delta": {} if said is None else {"content": said},
        "logprobs": told if logprobs else None,
        "finish_reason": None,
        "token_ids": ids,
        **finish,
    }
    return b"data: " + json.dumps({**HEAD, "choices": [choice], **more}).encode() + b"\n\n"


@pytest.mark.parametrize("last", ["", "x"])
def test_the_last_tokens_logprobs_and_ids_come_once_and_before_the_end(last: str) -> None:
    spoken = stream()
    (said,) = events(spoken.text(piece(last, [7], True, {"finish_reason": "length", "stop_reason": None})))
    (choice,) = said["choices"]
    assert (choice["token_ids"], choice["logprobs"]["content"][0]["token"]) == ([7], "7")
    assert (choice["finish_reason"], "stop_reason" in choice) == (None, False)
    *_, end, _ = events(spoken.end(0, expires_at=1))
    ended = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length", "stop_reason": None}
    assert end == {**HEAD, "choices": [ended]}


PIECES = st.tuples(st.none() | st.text(max_size=4), st.lists(st.integers(0, 99), max_size=3), st.booleans())
ENDS = st.fixed_dictionaries(
    {"finish_reason": st.sampled_from(["stop", "length"]), "stop_reason": st.none() | st.just(5)}
)
ONCE = st.fixed_dictionaries({}, optional={"prompt_token_ids": st.just([1, 2]), "prompt_text": st.just("x")})


def joined(raw: bytes) -> dict[str, Any]:
    """What a client that concatenates has of an answer, spoken or not."""
    found: dict[str, Any] = {"text": "", "token_ids": [], "logprobs": [], "ends": [], "once": []}
    for event in (event for event in events(raw) if event != "[DONE]"):
        found["once"] += [(k, v) for k, v in event.items() if k in ("prompt_token_ids", "prompt_text", "metrics")]
        for choice in event["choices"]:
            delta = choice["delta"]
            found["text"] += (delta.get("content") or "") + delta.get("audio", {}).get("transcript", "")
            found["token_ids"] += choice.get("token_ids") or []
            found["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            if choice["finish_reason"] or "stop_reason" in choice:
                found["ends"].append((choice["finish_reason"], choice["stop_reason"]))
    return found


@given(pieces=st.lists(PIECES, min_size=1, max_size=8), ends=ENDS, once=ONCE, cut=st.booleans())
def test_what_is_told_of_each_token_is_told_once(
    pieces: list[tuple[str | None, list[int], bool]], ends: dict[str, Any], once: dict[str, Any], cut: bool
) -> None:
    """Whatever the last chunk has beside its end, which is held back: the same as without speech."""
    *more, last = pieces
    sent = [ROLE, *(piece(*one, {}) for one in more), piece(*last, ends, **once)]
    total = b"data: " + json.dumps({**HEAD, "choices": [], "usage": USAGE, "metrics": {"a": 1}}).encode() + b"\n\n"
    plain = b"".join([*sent, total, DONE])
    spoken = stream(include_usage=True)
    heard = b"".join(map(spoken.text, [*sent, total, DONE])) if cut else spoken.text(plain)
    heard += spoken.data(b"\1" * 6) + spoken.end(3, expires_at=9)
    assert joined(heard) == joined(plain)
    kinds = ["usage" if not e["choices"] else e["choices"][0]["finish_reason"] for e in events(heard)[:-1]]
    assert kinds[-2:] == [ends["finish_reason"], "usage"]
    assert not any(kinds[:-2])


@given(
    said=st.lists(st.text(max_size=9), max_size=8),
    sound=st.lists(st.binary(max_size=400), max_size=8),
    chunk_size=st.integers(1, 40).map(lambda n: 6 * n),
    flush=st.booleans(),
)
def test_what_clients_join_is_what_was_said_and_heard(
    said: list[str], sound: list[bytes], chunk_size: int, flush: bool
) -> None:
    """However text and sound come, mixed: one id, one end, valid base64 of all samples, the whole transcript."""
    whole = b"".join(sound)
    sound[-1:] = [*sound[-1:], b"\0"] if len(whole) % 2 else sound[-1:]
    whole = b"".join(sound)
    spoken, cutter = stream(), Cutter(chunk_size)
    sent, pieces = [spoken.text(ROLE)], []
    for at in range(max(len(said), len(sound))):
        if at < len(said):
            sent.append(spoken.text(chunk({"content": said[at]})))
        if at < len(sound):
            cut = [*cutter.push(sound[at]), *([cutter.flush()] if flush else [])]
            pieces += [piece for piece in cut if piece]
            sent += [spoken.data(piece) for piece in cut if piece]
    assert all(len(piece) % 6 == 0 for piece in pieces)
    rest = cutter.finish()
    sent += [spoken.text(END), spoken.data(rest) if rest else b"", spoken.end(1, expires_at=9)]
    heard = [delta.get("audio", {}) for delta in deltas(b"".join(sent))]
    assert [audio["id"] for audio in heard if "id" in audio] == ["audio_1"]
    assert [audio["expires_at"] for audio in heard if "expires_at" in audio] == [9]
    assert "".join(audio.get("transcript", "") for audio in heard) == "".join(said) == spoken.transcript
    assert base64.b64decode("".join(audio.get("data", "") for audio in heard), validate=True) == whole
    ids = [at for at, audio in enumerate(heard) if "id" in audio]
    assert not any("data" in audio for audio in heard[: ids[0]])


@pytest.mark.parametrize("details", [None, {"reasoning_tokens": 2}])
def test_usage_keeps_what_it_had(details: Any) -> None:
    spoken = stream()
    spoken.text(
        b"data: "
        + json.dumps({**HEAD, "choices": [], "usage": {**USAGE, "completion_tokens_details": details}}).encode()
        + b"\n\n"
    )
    usage = spoken.usage(4)
    assert usage is not None
    assert usage["completion_tokens_details"] == {**(details or {}), "audio_tokens": 4, "text_tokens": 3}
