"""What is refused before any engine is asked, because only decode would refuse it.

Prefill is not sent what shapes the answer only, or other values of it (`legs.py`). So a wrong value there would cost a
prefill, whose KV then waits for nobody: vLLM frees it for what its handler refuses, and not for a field of a
wrong type. Where vLLM reads loosely (`"2"`, `2.0` and 2 are one integer) so does this; in doubt the engine decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from common.errors import BadRequest
from gateway.wire.request import CHAT, ClientRequest, shown

_EXTRA = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_SEED = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)])
_MAX_DIGITS = 4300
"""Characters of an integer in a string; pydantic, and so vLLM, reads no longer ones."""
_TRUTHS = frozenset({"true", "false", "t", "f", "yes", "no", "y", "n", "on", "off", "1", "0"})


def check_fields(request: ClientRequest) -> None:
    """Raises BadRequest, naming the field, for what every engine refuses and prefill would not see."""
    for name, (check, expected) in CHECKS[request.endpoint == CHAT].items():
        raw = request.fields.get(name)
        if raw is None or bytes(raw) == b"null":
            continue
        try:
            good = check(msgspec.json.decode(raw))
        except (msgspec.DecodeError, RecursionError):
            good = False
        if not good:
            raise BadRequest(f"{name} is {shown(raw)}; expected {expected}", param=name)
    _check_codec_seed(request)


def _check_codec_seed(request: ClientRequest) -> None:
    """The one extra argument that our own runner reads as a number, at a place where an exception ends its engine.
    Extra arguments that are no object the engine refuses itself."""
    try:
        extra = _EXTRA.decode(request.fields.get("vllm_xargs", b"null")) or {}
    except (msgspec.DecodeError, RecursionError):
        return
    raw = extra.get("tts_local_seed", msgspec.Raw(b"null"))
    if bytes(raw) == b"null":
        return
    name = "vllm_xargs.tts_local_seed"
    try:
        _SEED.decode(raw)
    except msgspec.DecodeError:
        raise BadRequest(f"{name} is {shown(raw)}; expected an integer of 64 bits", param=name) from None


def check_budget(request: ClientRequest, max_model_len: int | None) -> None:
    """Raises BadRequest for more output tokens than the model's whole context: on prefill it would pass, where it is
    one. None for a length that no engine tells. The words are vLLM's, which cuts a smaller budget to what fits."""
    name = "max_tokens"
    if request.endpoint == CHAT and request.given("max_completion_tokens"):
        name = "max_completion_tokens"
    asked = request.integer(name)
    if asked is not None and max_model_len is not None and asked > max_model_len:
        raise BadRequest(
            f"{name}={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens.",
            param=name,
        )


def _integer(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _MAX_DIGITS and re.fullmatch(r"\s*[+-]?[0-9_]+(\.0*)?\s*", value) is not None
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _number(value: Any) -> bool:
    """An integer that vLLM wants as a number, since it compares it before it reads it."""
    return not isinstance(value, str) and _integer(value)


def _truth(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in _TRUTHS
    return isinstance(value, int | float) and value in (0, 1)


def _integers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_integer, value))


def _strings(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))


def _object(value: Any) -> bool:
    return isinstance(value, dict)


Check = tuple[Callable[[Any], bool], str]
_INTEGER: Check = (_integer, "an integer")
_INTEGERS: Check = (_integers, "a list of integers")
_TRUTH: Check = (_truth, "true or false")

_COMMON: dict[str, Check] = {
    "max_tokens": _INTEGER,
    "min_tokens": _INTEGER,
    "n": _INTEGER,
    "ignore_eos": _TRUTH,
    "echo": _TRUTH,
    "return_token_ids": _TRUTH,
    "stop": (_strings, "a string or a list of strings"),
    "stop_token_ids": _INTEGERS,
    "allowed_token_ids": _INTEGERS,
    "logprob_token_ids": _INTEGERS,
    "structured_outputs": (_object, "an object"),
}
CHECKS: dict[bool, dict[str, Check]] = {
    True: {
        **_COMMON,
        "max_completion_tokens": _INTEGER,
        "logprobs": _TRUTH,
        "top_logprobs": (_number, "an integer"),
        "return_prompt_text": _TRUTH,
    },
    False: {**_COMMON, "logprobs": _INTEGER},
}
"""By whether the request is a chat."""
