"""Every error in OpenAI's shape: `{"error": {message, type, param, code}}`, `code` a string or null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from common.errors import DuetError, EngineError, EngineRefused

DONE = b"data: [DONE]\n\n"

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_TOO_LONG = ("maximum context length", "maximum model length", "longer than the maximum")


def error_body(error: DuetError) -> bytes:
    return msgspec.json.encode({"error": _shape(error.message, error.type, error.param, error.code)})


def error_reply(error: DuetError) -> tuple[int, Sequence[tuple[bytes, bytes]], bytes]:
    """Status, headers (names lower case) and body."""
    body = error_body(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after)).encode()))
        headers.append((b"retry-after-ms", str(round(error.retry_after * 1000)).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return error.status, headers, body


def stream_error(error: DuetError) -> bytes:
    """An error after the first byte: an event, and the end of the stream."""
    return b"data: " + error_body(error) + b"\n\n" + DONE


def refusal(engine: str, status: int, body: bytes) -> EngineError:
    """An engine's error reply as an error of ours, in the engine's words.

    Takes vLLM's shape (`code` an int), FastAPI's `{"detail"}`, and anything else as text. An engine that refuses the
    gateway's own key is not the client's fault: that one becomes a 502.
    """
    told = _told(body)
    message = str(told.get("message") or f"engine {engine} answered with status {status}")
    if status in (401, 403):
        return EngineError(f"engine {engine} refused the gateway with status {status}: {message}", engine=engine)
    if not 400 <= status <= 599:
        return EngineError(f"engine {engine} answered with status {status}; expected 200", engine=engine)
    return refused(engine, {**told, "message": message}, status)


def refused(engine: str, told: Mapping[str, Any], status: int | None = None) -> EngineRefused:
    """An engine's error object as an error of ours. Without `status` its `code` is taken, where it is one, else 500."""
    code = told.get("code")
    if status is None:
        status = code if isinstance(code, int) and 400 <= code <= 599 else 500
    message = str(told.get("message") or f"engine {engine} failed")
    param = told.get("param")
    return EngineRefused(
        message,
        engine=engine,
        status=status,
        type=_TYPES.get(status),
        code=_code(code, status, message),
        param=param if isinstance(param, str) else None,
    )


def _code(code: Any, status: int, message: str) -> str | None:
    """A string such as OpenAI's own: vLLM's is the status again, which says nothing."""
    if isinstance(code, str) and not code.isdigit():
        return code
    if status == 404 and "model" in message.lower():
        return "model_not_found"
    if status == 400 and any(words in message for words in _TOO_LONG):
        return "context_length_exceeded"
    return "engine_error" if status >= 500 else None


def _told(body: bytes) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = None
    if isinstance(said, dict):
        error = said.get("error", said)
        if isinstance(error, dict) and ("message" in error or "detail" in error):
            return {**error, "message": _text(error.get("message", error.get("detail")))}
        if isinstance(error, str):
            return {"message": error}
    return {"message": body[:500].decode("utf-8", "replace").strip()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shape(message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    return {"message": message, "type": type_, "param": param, "code": code}
