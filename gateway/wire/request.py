"""A client's body. The gateway reads the few fields that it needs; every other one stays the bytes that were sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import BadRequest, MalformedBody, NotJson
from gateway.wire.added import DROPPED, XARGS_DROPPED
from gateway.wire.modalities import wants_audio
from gateway.wire.parts import media_kinds
from gateway.wire.shape import MAX_FIELDS, check_shape

Fields = Mapping[str, msgspec.Raw]
"""Top-level fields, each as the JSON text that the client sent."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_PROMPT = {CHAT: ("messages",), COMPLETIONS: ("prompt", "prompt_embeds")}
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SHOWN = 80
"""Bytes of a wrong value that its error message shows."""
_FRACTION = re.compile(r"\.0*(?=\s*$)")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """`fields` are in the client's order, without those that no engine may see (`added.DROPPED`).

    A field that came twice counts as its last value, as engines read it. `include_usage` is whether a stream ends
    with a usage event, `media` what a chat's messages have in them besides text (`parts.media_kinds`), `speaks` whether
    the answer is wanted as sound too.
    """

    endpoint: str
    fields: Fields
    model: str
    stream: bool
    include_usage: bool
    media: frozenset[str] = frozenset()
    speaks: bool = False

    def given(self, name: str) -> bool:
        """Whether a field is there and is not null."""
        return bytes(self.fields.get(name, b"null")) != b"null"

    def has(self, name: str) -> bool:
        """Whether a field is there and is neither null nor false."""
        return self.given(name) and bytes(self.fields[name]) != b"false"

    def integer(self, name: str) -> int | None:
        """A field as an engine reads it for an integer: `-1`, `-1.0`, `"-1"` and `"-1.0"` alike. None if it is no
        integer."""
        try:
            value = msgspec.json.decode(self.fields.get(name, b"null"))
            if isinstance(value, str):
                return int(_FRACTION.sub("", value))
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return int(value) if whole else None
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None


def parse(endpoint: str, body: bytes, content_type: bytes | None = None) -> ClientRequest:
    """`content_type` is the header's value, None if there was none.

    Raises NotJson or MalformedBody for what is no JSON object, BadRequest for a field that cannot be read.
    """
    _expect_json(content_type)
    check_shape(body)
    fields = _object(body)
    if len(fields) > MAX_FIELDS:
        raise MalformedBody(f"the body has {len(fields)} fields; expected at most {MAX_FIELDS}")
    for name in DROPPED:
        fields.pop(name, None)
    if "vllm_xargs" in fields:
        fields["vllm_xargs"] = _without_steering(fields["vllm_xargs"])
    model = _read(fields, "model", str, "a model name")
    stream = bool(_read(fields, "stream", bool | None, "true or false", default=None))
    if all(name not in fields for name in _PROMPT[endpoint]):
        name = _PROMPT[endpoint][0]
        raise BadRequest(f"{name} is missing; expected it for {endpoint}", param=name)
    media = media_kinds(bytes(fields["messages"])) if endpoint == CHAT else frozenset()
    speaks = wants_audio(fields, chat=endpoint == CHAT)
    return ClientRequest(endpoint, fields, model, stream, _include_usage(fields, stream), media, speaks)


def _expect_json(content_type: bytes | None) -> None:
    if content_type is None:
        return
    media = content_type.partition(b";")[0].strip().lower()
    if media != b"application/json":
        seen = content_type[:_SHOWN].decode("latin-1")
        raise NotJson(f"the content-type is {seen!r}; expected application/json")


def _object(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        str(body, "utf-8")  # the decoder looks into no string that it leaves raw
        return _FIELDS.decode(body)
    except UnicodeDecodeError as e:
        raise MalformedBody(f"the body is not UTF-8: byte {e.object[e.start]:#04x} at {e.start}") from None
    except msgspec.ValidationError as e:
        raise MalformedBody(f"the body is not a JSON object: {e}") from None
    except msgspec.DecodeError as e:
        raise MalformedBody(f"the body is not valid JSON: {e}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _include_usage(fields: Fields, stream: bool) -> bool:
    """Checked here because prefill is never sent `stream_options`: without this a wrong one costs a prefill."""
    name = "stream_options"
    options = _read(fields, name, dict[str, msgspec.Raw] | None, "an object", default=None) or {}
    if options and not stream:
        seen = shown(fields[name])
        raise BadRequest(f"{name} is {seen} and stream is not true; expected it only for streams", param=name)
    told = {f"{name}.{key}": value for key, value in options.items()}
    _read(told, f"{name}.continuous_usage_stats", bool | None, "true or false", default=None)
    return bool(_read(told, f"{name}.include_usage", bool | None, "true or false", default=None))


def _read(fields: Fields, name: str, kind: Any, expected: str, *, default: Any = ...) -> Any:
    raw = fields.get(name)
    if raw is None:
        if default is ...:
            raise BadRequest(f"{name} is missing; expected {expected}", param=name)
        return default
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest(f"{name} is {shown(raw)}; expected {expected}", param=name) from None


def shown(raw: msgspec.Raw) -> str:
    """A field's value for an error message, cut if it is long."""
    return bytes(raw)[:_SHOWN].decode("utf-8", "replace")


def _without_steering(raw: msgspec.Raw) -> msgspec.Raw:
    try:
        extra = _FIELDS.decode(raw)
    except msgspec.DecodeError:
        return raw  # no object: the engine says so
    if XARGS_DROPPED.isdisjoint(extra):
        return raw
    return msgspec.Raw(msgspec.json.encode({k: v for k, v in extra.items() if k not in XARGS_DROPPED}))
