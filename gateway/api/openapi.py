"""The hot paths in the OpenAPI description: FastAPI does not serve them, so it cannot describe them by itself."""

from __future__ import annotations

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
_COMMON = {
    "model": {"type": "string"},
    "stream": {"type": ["boolean", "null"], "default": False},
    "max_tokens": {"type": ["integer", "null"], "minimum": 1},
    "temperature": {"type": ["number", "null"], "minimum": 0, "maximum": 2},
}
_BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "required": ["model", "messages"],
        "properties": {
            **_COMMON,
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
            },
        },
    },
    "/v1/completions": {
        "required": ["model", "prompt"],
        "properties": {**_COMMON, "prompt": {"type": ["string", "array"]}},
    },
}
_ERRORS = {
    400: "The body is wrong; the message names the field",
    401: "No API key, or an unknown one",
    404: "The model does not exist",
    413: "The body is too long",
    502: "An engine failed",
    503: "No engine can take the request now; try again after `Retry-After`",
    504: "An engine did not answer in time",
}


def add_hot_paths(app: FastAPI) -> None:
    """Makes `app.openapi()` describe the hot paths too. Further fields are the engine's: they pass through."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        for path, body in _BODIES.items():
            schema["paths"].setdefault(path, {"post": _operation(path, body)})
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(path: str, body: dict[str, Any]) -> dict[str, Any]:
    errors = {
        str(status): {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _ERRORS.items()
    }
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
