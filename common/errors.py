"""The error tree. One class an outcome that a client or an operator can tell apart.

    DuetError
    ├── BadRequest (400)             ├── NoRoutableEngine (503)
    │   └── MalformedBody            ├── StoreUnavailable (503)
    │       └── NotJson (415)        │
    ├── Unauthorized (401)           ├── EngineError (502)
    ├── Forbidden (403)              │   ├── EngineUnreachable (503)
    ├── NotFound (404)               │   ├── EngineTimeout (504)
    │   ├── ModelNotFound            │   ├── EngineBroken
    │   ├── EngineNotFound           │   │
    │   └── RequestNotFound          │   │
    ├── Conflict (409)               │   │
    ├── MethodNotAllowed (405)       │   ├── EngineRefused (the engine's status)
    ├── BodyTimeout (408)            │   └── HandoffInvalid
    ├── PayloadTooLarge (413)        │       └── HandoffExpired
    ├── HeadersTooLarge (431)        ├── ConfigurationError (500)
    ├── RequestCancelled (499)       └── IllegalTransition (500)

`status` is the HTTP status, `type` and `code` are OpenAI's error fields, `param` names the field at fault,
`retry_after` is in seconds. `gateway/wire/errors.py` is the only place that turns one into a body.
"""

from __future__ import annotations


class DuetError(Exception):
    """Base of every error that Duet raises on purpose."""

    status: int = 500
    type: str = "server_error"
    code: str | None = "internal_error"
    retry_after: float | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class BadRequest(DuetError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class MalformedBody(BadRequest):
    """The body is not a JSON object."""

    code = "invalid_json"


class NotJson(MalformedBody):
    """The content type is another than JSON's."""

    status = 415
    code = "unsupported_media_type"


class Unauthorized(DuetError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(DuetError):
    """The key is known, but does not open this."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(DuetError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class EngineNotFound(NotFound):
    code = "engine_not_found"


class RequestNotFound(NotFound):
    code = "request_not_found"


class Conflict(DuetError):
    """What is asked for contradicts what is there."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class MethodNotAllowed(DuetError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class BodyTimeout(DuetError):
    """The request's headers or its body did not come in time."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class PayloadTooLarge(DuetError):
    status = 413
    type = "invalid_request_error"
    code = "payload_too_large"


class HeadersTooLarge(DuetError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class RequestCancelled(DuetError):
    """Somebody asked for the request's end while it ran. 499 is nginx's number for it; HTTP has none of its own."""

    status = 499
    type = "request_cancelled"
    code = "request_cancelled"


class NoRoutableEngine(DuetError):
    """No healthy engine of a needed role serves the model. A client may try again after `retry_after` s."""

    status = 503
    type = "service_unavailable"
    code = "no_routable_engine"
    retry_after = 2.0


class StoreUnavailable(DuetError):
    """Redis did not answer, and the step cannot go on without it."""

    status = 503
    type = "service_unavailable"
    code = "store_unavailable"
    retry_after = 1.0


class EngineError(DuetError):
    """An engine failed; `engine` is its id. `worked` is whether it may have done all the same what it was asked, or a
    part of it: what it made of a prompt may lie there then."""

    status = 502
    type = "engine_error"
    code: str | None = "engine_error"

    def __init__(self, message: str, *, engine: str, param: str | None = None, worked: bool = True) -> None:
        super().__init__(message, param=param)
        self.engine = engine
        self.worked = worked


class EngineUnreachable(EngineError):
    """No connection, or it broke before the engine's response headers came. It may be back in a moment."""

    status = 503
    code = "engine_unreachable"
    retry_after = 1.0

    def __init__(self, message: str, *, engine: str, worked: bool = False) -> None:
        super().__init__(message, engine=engine, worked=worked)


class EngineTimeout(EngineError):
    status = 504
    code = "engine_timeout"


class EngineBroken(EngineError):
    """The engine's reply ended early or is not what the protocol says."""

    code = "engine_broken"


class HandoffInvalid(EngineError):
    """Prefill's routing metadata is missing, incomplete or used before: decode must not see it."""

    code = "handoff_invalid"


class HandoffExpired(HandoffInvalid):
    """The KV's lease ran out before decode could fetch it: whatever is in those blocks now is another's."""

    code = "handoff_expired"


class EngineRefused(EngineError):
    """The engine answered with an error of its own; status, message, type, param and code are its words.

    `type` defaults to `invalid_request_error` below 500 and `engine_error` from 500 on.
    """

    def __init__(
        self,
        message: str,
        *,
        engine: str,
        status: int,
        type: str | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message, engine=engine, param=param, worked=False)
        self.status = status
        self.type = type or ("invalid_request_error" if status < 500 else "engine_error")
        self.code = code


class ConfigurationError(DuetError):
    """A setting or a topology cannot work; the message names the setting, its value and what was expected."""

    code = "configuration_error"


class IllegalTransition(DuetError):
    """An event that the lifecycle table does not know in this state: a fault of the gateway, never of a client."""

    code = "illegal_transition"
