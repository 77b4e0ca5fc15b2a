"""Every error in OpenAI's shape: `{"error": {message, type, param, code}}`, `code` a string or null.

| what an engine says | what a client gets |
| --- | --- |
| 4xx, 5xx in vLLM's shape | the same status, message and `param`; `code` as a string, not as the status again |
| FastAPI's `{"detail"}`, plain text, nothing | the same status, with the text there is |
| 401, 403 | 502: it is the gateway's key that the engine refuses |
| 400 about `kv_transfer_params` | 502: these are the gateway's, not the client's |
| an error object under status 200, streamed or whole | as if its `code` were the status; 500 without |
| `event: error` in a stream | the same, whatever its data are |
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import DuetError, EngineError, EngineRefused, HandoffInvalid
from gateway.wire.added import STEERING

_NULL = msgspec.Raw(b"null")
DONE = b"data: [DONE]\n\n"
MAX_MESSAGE = 4096
"""Characters of an engine's message that are passed on: some engines repeat the whole prompt in it."""
BUSY_RETRY_AFTER = 1.0
"""Seconds, for an engine that says it is busy (429, 503) and not for how long."""

MAX_RETRY_AFTER = 3600.0
"""Seconds: no client is sent away for longer, whatever an engine says."""

MAX_PARAM = 256
"""Characters of the name of a field at fault."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_TOO_LONG = ("maximum context length", "maximum model length", "longer than the maximum")


def error_body(error: DuetError) -> bytes:
    shape = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": shape})


def error_reply(error: DuetError) -> tuple[int, Sequence[tuple[bytes, bytes]], bytes]:
    """Status, headers (names lower case) and body."""
    body = error_body(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if error.retry_after is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after)).encode()))
        headers.append((b"retry-after-ms", str(round(error.retry_after * 1000)).encode()))
    if _is_pointless_to_repeat(error):
        headers.append((b"x-should-retry", b"false"))
    if error.status == 408:
        headers.append((b"connection", b"close"))  # the rest of the request may never come
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return error.status, headers, body


def stream_error(error: DuetError) -> bytes:
    """An error after the first byte: an event, and the end of the stream."""
    return b"data: " + error_body(error) + b"\n\n" + DONE


def refusal(engine: str, status: int, body: bytes, retry_after: str | None = None) -> EngineError:
    """An engine's error reply as an error of ours, in the engine's words. `retry_after` is its header's value."""
    if not 400 <= status <= 599:
        why = f"engine {engine} answered with status {status}; expected 200"
        return EngineError(why, engine=engine, worked=False)
    return _refused(engine, _told(body), status, retry_after)


def error_in(fields: Mapping[str, msgspec.Raw]) -> Any:
    """What a JSON object under a good status says went wrong, as JSON; None if it says nothing of the kind.

    Old vLLM has no `error` around it, but says in `object` what it is. Raises msgspec.DecodeError, RecursionError.
    """
    error = msgspec.json.decode(fields.get("error", _NULL))
    if error is None and bytes(fields.get("object", _NULL)) == b'"error"':
        return {name: msgspec.json.decode(raw) for name, raw in fields.items() if name != "object"}
    return error


def refused(engine: str, error: Any) -> EngineError:
    """An error that came under a good status, as JSON (`error_in`): what it would be under the status it names."""
    told = _read(error)
    named = told.code if isinstance(told.code, int) and 400 <= told.code <= 599 else 500
    return _refused(engine, told, named)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an engine said. `code` as it came; `message` may be empty."""

    message: str
    param: str | None = None
    code: Any = None


def _refused(engine: str, told: _Told, status: int, retry_after: str | None = None) -> EngineError:
    if status in (401, 403):
        why = f"engine {engine} refused the gateway with status {status}: {told.message}"
        return EngineError(why, engine=engine, worked=False)
    message = told.message or f"engine {engine} answered with status {status}"
    if told.param is not None and told.param.partition(".")[0] in STEERING:
        return HandoffInvalid(f"engine {engine} refused the handoff: {message}", engine=engine, worked=False)
    error = EngineRefused(
        message,
        engine=engine,
        status=status,
        type=_TYPES.get(status),
        code=_code(told.code, status, message),
        param=told.param,
    )
    if status in (429, 503):
        error.retry_after = _seconds(retry_after)
    return error


def _code(code: Any, status: int, message: str) -> str | None:
    """A name such as OpenAI's own: vLLM's is the status again, which says nothing."""
    if isinstance(code, str) and _NAME.fullmatch(code):
        return code
    if status == 404 and "model" in message.lower():
        return "model_not_found"
    if status == 400 and any(words in message for words in _TOO_LONG):
        return "context_length_exceeded"
    return "engine_error" if status >= 500 else None


def _told(body: bytes) -> _Told:
    """What an error body says: vLLM's shape (old ones have no `error` around it), FastAPI's, or text."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        said = None
    if isinstance(said, dict):
        error = said if said.get("error") is None else said["error"]
        told = _read(error)
        if told.message or (isinstance(error, dict) and error.get("message") == ""):
            return told
    return _Told(_text(body.decode("utf-8", "replace").strip()))


def _read(error: Any) -> _Told:
    if not isinstance(error, dict):
        return _Told(_text(error))
    message = next((error[name] for name in ("message", "detail") if error.get(name) is not None), "")
    param = error.get("param")
    return _Told(_text(message), param[:MAX_PARAM] if isinstance(param, str) else None, error.get("code"))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]} ..."


def _seconds(retry_after: str | None) -> float:
    """A `Retry-After` in seconds, at most an hour; one that is a date, or no number at all, counts as none."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return BUSY_RETRY_AFTER
    return min(seconds, MAX_RETRY_AFTER) if 0 <= seconds < math.inf else BUSY_RETRY_AFTER


def _is_pointless_to_repeat(error: DuetError) -> bool:
    """Clients repeat every 5xx by themselves. A fault of the gateway stays one; an engine's may not be another's."""
    if isinstance(error, EngineError):
        return error.status == 501
    return error.status >= 500 and error.retry_after is None
