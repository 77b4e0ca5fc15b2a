"""The hot paths in the OpenAPI description: FastAPI does not serve them, so it cannot describe them by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
_TOKEN: dict[str, Any] = {"type": "integer", "minimum": 0}
_COUNT: dict[str, Any] = {"type": ["integer", "null"], "minimum": 1}
_COMMON: dict[str, Any] = {
    "model": {"type": "string"},
    "stream": {"type": ["boolean", "null"], "default": False},
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": {"type": ["boolean", "null"]}}},
    "max_tokens": _COUNT,
    "n": {**_COUNT, "default": 1},
    "temperature": {**_NUMBER, "minimum": 0, "maximum": 2},
    "top_p": {**_NUMBER, "exclusiveMinimum": 0, "maximum": 1},
    "presence_penalty": {**_NUMBER, "minimum": -2, "maximum": 2},
    "frequency_penalty": {**_NUMBER, "minimum": -2, "maximum": 2},
    "seed": {"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 1},
    "stop": {"type": ["string", "array", "null"], "items": {"type": "string"}},
    "user": {"type": ["string", "null"]},
}
_AUDIO: dict[str, Any] = {
    "type": ["object", "null"],
    "description": "With modalities text and audio; `sampling` is Duet's own",
    "required": ["voice", "format"],
    "properties": {
        "voice": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {"type": "string"}}}]},
        "format": {"enum": ["wav", "mp3", "flac", "opus", "aac", "pcm16"]},
        "sampling": {"type": ["object", "null"]},
    },
}
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "required": ["model", "messages"],
        "properties": {
            **_COMMON,
            "max_completion_tokens": _COUNT,
            "modalities": {"type": ["array", "null"], "items": {"enum": ["text", "audio"]}, "default": ["text"]},
            "audio": _AUDIO,
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
            },
        },
    },
    "/v1/completions": {
        "required": ["model", "prompt"],
        "properties": {
            **_COMMON,
            "prompt": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}},
                    {"type": "array", "items": _TOKEN},
                    {"type": "array", "items": {"type": "array", "items": _TOKEN}},
                ],
            },
        },
    },
}
_ERRORS = {
    400: "The request is wrong; the message names the field",
    401: "No API key, or an unknown one",
    404: "The model does not exist",
    408: "The request did not come in time",
    413: "The body is too long",
    415: "The body is not JSON",
    429: "An engine has too much to do; try again after `Retry-After`",
    431: "The headers are too long",
    499: "An operator cancelled the request before its first byte",
    500: "Each engine that was asked failed at the request",
    501: "An engine does not know how to do what is asked",
    502: "An engine failed",
    503: "No engine can take the request now; try again after `Retry-After`",
    504: "An engine did not answer in time",
}
_ALSO = {"/v1/models": (401,), "/v1/models/{name}": (401, 404)}
"""What FastAPI's paths may answer too."""


def add_hot_paths(app: FastAPI) -> None:
    """Makes `app.openapi()` describe the hot paths too. Further fields are the engine's: they pass through."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        for path, body in _BODIES.items():
            schema["paths"].setdefault(path, {"post": _operation(path, body)})
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _told_as_it_is(operation["responses"], _ALSO.get(path, ()))
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _told_as_it_is(responses: dict[str, Any], also: Sequence[int]) -> None:
    """FastAPI describes a 422 of its own for every parameter; here that is a 400 in OpenAI's shape."""
    refused = [400] if responses.pop("422", None) is not None else []
    for status in (*refused, *also):
        responses.setdefault(str(status), _error(status))


def _error(status: int) -> dict[str, Any]:
    return {"description": _ERRORS[status], "content": {"application/json": {"schema": _ERROR}}}


def _operation(path: str, body: dict[str, Any]) -> dict[str, Any]:
    errors = {str(status): _error(status) for status in _ERRORS}
    return {
        "tags": ["openai"],
        "summary": "A chat answer" if "chat" in path else "A completion",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object", **body}}},
        },
        "responses": {
            "200": {
                "description": "The answer; server-sent events if `stream` is true",
                "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
            },
            **errors,
        },
    }
