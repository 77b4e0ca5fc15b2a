"""Bodies that ask for sound, refer to it, and answer with it."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from common.errors import BadRequest, EngineBroken
from gateway.wire import conditioned, parse
from gateway.wire.recalled import Recalled, recalled, with_transcripts
from gateway.wire.request import ClientRequest
from gateway.wire.spoken import Audio, Said, said, with_audio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
AUDIO = {"voice": "ethan", "format": "wav"}
BOTH = ["text", "audio"]


def request(endpoint: str = CHAT, **fields: Any) -> ClientRequest:
    prompt: dict[str, Any] = {"messages": []} if endpoint == CHAT else {"prompt": "x"}
    return parse(endpoint, json.dumps({"model": "m", **prompt, **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "speaks"),
    [
        ({}, False),
        ({"modalities": None}, False),
        ({"modalities": ["text"]}, False),
        ({"modalities": ["text"], "audio": None}, False),
        ({"modalities": BOTH, "audio": AUDIO}, True),
        ({"modalities": BOTH[::-1], "audio": AUDIO}, True),
    ],
)
def test_what_asks_for_sound(fields: dict[str, Any], speaks: bool) -> None:
    assert request(**fields).speaks is speaks


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (CHAT, {"modalities": ["audio"], "audio": AUDIO}, "modalities"),
        (CHAT, {"modalities": [], "audio": AUDIO}, "modalities"),
        (CHAT, {"modalities": ["text", "image"]}, "modalities"),
        (CHAT, {"modalities": {"audio": True}}, "modalities"),
        (CHAT, {"modalities": BOTH}, "audio"),
        (CHAT, {"audio": AUDIO}, "audio"),
        (COMPLETIONS, {"modalities": BOTH, "audio": AUDIO}, "modalities"),
    ],
)
def test_what_asks_wrongly(endpoint: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        request(endpoint, **fields)
    assert caught.value.param == param


def decoded(asked: ClientRequest) -> Any:
    return json.loads(msgspec.json.encode(asked.fields))


def test_a_leg_is_told_where_to_tell_and_not_what_for() -> None:
    asked = request(modalities=BOTH, audio=AUDIO, vllm_xargs={"mine": 1}, top_p=0.5, cache_salt="mine")
    assert decoded(conditioned(asked, "r-1-prefill", "r-1-speech")) == {
        "model": "m",
        "messages": [],
        "vllm_xargs": {"mine": 1, "duet_conditioning": "r-1-prefill"},
        "top_p": 0.5,
        "cache_salt": "mine",
    }


def test_a_prompt_with_media_has_a_salt_of_its_own() -> None:
    content = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
    asked = request(modalities=BOTH, audio=AUDIO, messages=[{"role": "user", "content": content}], cache_salt="mine")
    assert decoded(conditioned(asked, "s", "salt"))["cache_salt"] == "salt"


def test_a_client_names_no_stream() -> None:
    asked = request(vllm_xargs={"duet_conditioning": "x", "duet_speech": {}, "mine": 1})
    assert decoded(asked)["vllm_xargs"] == {"mine": 1}


ANSWERED = {"role": "assistant", "audio": {"id": "audio_a"}}
USER = {"role": "user", "content": 'she said "audio"'}


def test_earlier_answers_are_found_by_their_audio() -> None:
    asked = request(messages=[USER, ANSWERED, USER, {**ANSWERED, "audio": {"id": "audio_b"}}])
    found = recalled(asked)
    assert found == (Recalled(1, "audio_a"), Recalled(3, "audio_b"))
    assert found[1].param == "messages[3].audio.id"
    told = decoded(with_transcripts(asked, {1: "one", 3: "two"}))["messages"]
    assert told == [USER, {"role": "assistant", "content": "one"}, USER, {"role": "assistant", "content": "two"}]


@pytest.mark.parametrize(("content", "kept"), [("mine", "mine"), ("", "one"), (None, "one"), ([], "one")])
def test_a_message_with_words_keeps_them(content: Any, kept: str) -> None:
    asked = request(messages=[{**ANSWERED, "content": content}])
    assert decoded(with_transcripts(asked, {0: "one"}))["messages"] == [{"role": "assistant", "content": kept}]


@pytest.mark.parametrize(
    "messages",
    [[], [USER], "audio", [{"role": "user", "audio": {"id": "x"}}], [{"role": "assistant", "audio": None}], ["audio"]],
)
def test_what_refers_to_nothing(messages: Any) -> None:
    assert recalled(request(messages=messages)) == ()


@pytest.mark.parametrize("audio", ["audio_a", {}, {"id": 7}, []])
def test_a_reference_without_an_id_is_named(audio: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        recalled(request(messages=[USER, {"role": "assistant", "audio": audio}]))
    assert caught.value.param == "messages[1].audio"


def body(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "choices": [choice], "usage": {"completion_tokens": 3, "total_tokens": 8}}).encode()


def test_a_whole_answer_with_its_sound() -> None:
    raw = body(content="Hello", refusal=None)
    assert said("e", raw) == Said("Hello", False)
    told, usage = with_audio(raw, json.loads(raw)["usage"], Audio("audio_1", b"RIFF", "Hello", 99, 4))
    answer = json.loads(told)
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "audio": {"id": "audio_1", "data": base64.b64encode(b"RIFF").decode(), "transcript": "Hello", "expires_at": 99},
    }
    assert answer["usage"] == usage
    assert answer["usage"]["completion_tokens_details"] == {"audio_tokens": 4, "text_tokens": 3}
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_an_answer_that_calls_tools_is_known() -> None:
    assert said("e", body(content=None, tool_calls=[{"id": "t"}])) == Said("", True)
    assert said("e", body(content=None, tool_calls=[])) == Said("", False)


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'{"choices": []}', b'{"choices": [{"text": "x"}]}'])
def test_what_is_no_chat_answer(raw: bytes) -> None:
    with pytest.raises(EngineBroken, match="no chat message"):
        said("e", raw)
