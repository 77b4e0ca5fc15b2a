"""What prefill answered: routing metadata, the prompt's tokens, and how many they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import EngineBroken


@dataclass(frozen=True, slots=True)
class Prefilled:
    """`params` is `kv_transfer_params` as JSON values, None where null or absent; `prompt_token_ids` the JSON text
    of a list, None where the engine sent none; `prompt_tokens` and `cached_tokens` are counts from its usage."""

    params: Mapping[str, Any] | None
    prompt_token_ids: bytes | None
    prompt_tokens: int | None
    cached_tokens: int | None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None
    kv_transfer_params: dict[str, Any] | None = None
    prompt_token_ids: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Reply).decode


def parse_prefill_reply(engine: str, body: bytes) -> Prefilled:
    """Raises EngineBroken for a reply that is none, or that ended with `finish_reason` "error"."""
    try:
        reply = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise EngineBroken(f"prefill engine {engine} answered with no completion: {e}", engine=engine) from None
    if not reply.choices:
        raise EngineBroken(f"prefill engine {engine} answered with no choice; expected one", engine=engine)
    choice = reply.choices[0]
    if choice.finish_reason == "error":
        raise EngineBroken(f"prefill engine {engine} ended with finish_reason error", engine=engine)
    usage = reply.usage or _Usage()
    details = usage.prompt_tokens_details or _Details()
    ids = next((bytes(r) for r in (reply.prompt_token_ids, choice.prompt_token_ids) if bytes(r)[:1] == b"["), None)
    return Prefilled(reply.kv_transfer_params, ids, usage.prompt_tokens, details.cached_tokens)
