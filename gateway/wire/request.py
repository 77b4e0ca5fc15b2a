"""A client's body. The gateway reads the few fields that it needs; every other one stays the bytes that were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import BadRequest, MalformedBody
from gateway.wire.added import STEERING

Fields = Mapping[str, msgspec.Raw]
"""Top-level fields, each as the JSON text that the client sent."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_PROMPT = {CHAT: ("messages",), COMPLETIONS: ("prompt", "prompt_embeds")}
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """`fields` are in the client's order, without those that could steer engines (`added.STEERING`)."""

    endpoint: str
    fields: Fields
    model: str
    stream: bool

    def has(self, name: str) -> bool:
        """Whether a field is there and is neither null nor false."""
        return bytes(self.fields.get(name, b"null")) not in (b"null", b"false")


def parse(endpoint: str, body: bytes) -> ClientRequest:
    """Raises MalformedBody for what is no JSON object, BadRequest for a field that the gateway reads and cannot."""
    fields = _object(body)
    for name in STEERING:
        fields.pop(name, None)
    if b"_transfer_params" in body and "vllm_xargs" in fields:
        fields["vllm_xargs"] = _without_steering(fields["vllm_xargs"])
    model = _read(fields, "model", str, "a model name")
    stream = _read(fields, "stream", bool | None, "true or false", default=False)
    if not any(name in fields for name in _PROMPT[endpoint]):
        name = _PROMPT[endpoint][0]
        raise BadRequest(f"{name} is missing; expected it for {endpoint}", param=name)
    return ClientRequest(endpoint, fields, model, bool(stream))


def _object(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        str(body, "utf-8")
        return _FIELDS.decode(body)
    except UnicodeDecodeError as e:
        raise MalformedBody(f"the body is not UTF-8: byte {e.object[e.start]:#04x} at {e.start}") from None
    except msgspec.ValidationError as e:
        raise MalformedBody(f"the body is not a JSON object: {e}") from None
    except msgspec.DecodeError as e:
        raise MalformedBody(f"the body is not valid JSON: {e}") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _read(fields: Fields, name: str, kind: Any, expected: str, *, default: Any = ...) -> Any:
    raw = fields.get(name)
    if raw is None:
        if default is ...:
            raise BadRequest(f"{name} is missing; expected {expected}", param=name)
        return default
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        seen = bytes(raw[:80]).decode("utf-8", "replace")
        raise BadRequest(f"{name} is {seen}; expected {expected}", param=name) from None


def _without_steering(raw: msgspec.Raw) -> msgspec.Raw:
    try:
        extra = _FIELDS.decode(raw)
    except msgspec.DecodeError:
        return raw  # no object: the engine says so
    return msgspec.Raw(msgspec.json.encode({k: v for k, v in extra.items() if k not in STEERING}))
