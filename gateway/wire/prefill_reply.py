"""What prefill answered: routing metadata, the prompt's tokens, and how many they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from common.errors import EngineBroken
from gateway.wire.choices import Choice, failed_end
from gateway.wire.errors import error_in, refused


@dataclass(frozen=True, slots=True)
class Prefilled:
    """`params` is `kv_transfer_params` as JSON values, None where null or absent; `prompt_token_ids` the JSON text
    of a list, None where the engine sent none; `prompt_tokens` and `cached_tokens` are counts from its usage. Without
    usage the prompt has as many tokens as ids; None where the engine told neither."""

    params: Mapping[str, Any] | None
    prompt_token_ids: bytes | None
    prompt_tokens: int | None
    cached_tokens: int | None


_NULL = msgspec.Raw(b"null")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Reply(msgspec.Struct):
    choices: list[Choice]
    usage: _Usage | None = None
    kv_transfer_params: dict[str, Any] | None = None
    prompt_token_ids: msgspec.Raw = _NULL


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder(_Reply).decode
_decode_ids = msgspec.json.Decoder(list[_Count] | None).decode


def parse_prefill_reply(engine: str, body: bytes) -> Prefilled:
    """Raises EngineBroken for a reply that is none, that did not end well, or whose token ids are not the prompt's, and
    what `refused` makes of an error under status 200.

    Ids that are not the prompt whose KV waits must not reach decode: a longer prompt there can kill the engine.
    """
    try:
        if b'"error"' in body and (error := error_in(_fields(body))) is not None:
            raise refused(engine, error)
        reply = _decode(body)
        ids = _decode_ids(reply.prompt_token_ids)
    except (msgspec.DecodeError, RecursionError) as e:
        raise EngineBroken(f"prefill engine {engine} answered with no completion: {e}", engine=engine) from None
    if not reply.choices:
        raise EngineBroken(f"prefill engine {engine} answered with no choice; expected one", engine=engine)
    if end := failed_end(reply.choices):
        raise EngineBroken(f"prefill engine {engine} ended with finish_reason {end}", engine=engine)
    usage = reply.usage or _Usage()
    details = usage.prompt_tokens_details or _Details()
    if ids and usage.prompt_tokens is not None and len(ids) != usage.prompt_tokens:
        raise EngineBroken(
            f"prefill engine {engine} returned {len(ids)} prompt_token_ids; expected usage.prompt_tokens, "
            f"{usage.prompt_tokens}",
            engine=engine,
        )
    raw = bytes(reply.prompt_token_ids) if ids else None
    tokens = usage.prompt_tokens if usage.prompt_tokens is not None or not ids else len(ids)
    return Prefilled(reply.kv_transfer_params, raw, tokens, details.cached_tokens)
