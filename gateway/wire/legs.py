"""One client body, two engine bodies.

Prefill keeps all that shapes the prompt: messages, tools, `tool_choice`, `response_format`, `reasoning_effort`,
chat template arguments, media, documents, truncation, and every field that is not known here. What it changes:

| field | on prefill | why |
| --- | --- | --- |
| `max_tokens` | 1 | prefill computes the prompt, its one token is thrown away |
| `max_completion_tokens`, `max_output_tokens` | 1 if given | they would override `max_tokens` |
| `min_tokens` | 1 | an end token as the first one must not end it early; exactly 1 also masks the server's stop ids |
| `ignore_eos` | true | KV is exported only by a request that ended by length |
| `n` | 1 | one prompt, one KV |
| `stream` | false | only a whole reply carries `kv_transfer_params` back |
| `stream_options` | dropped | refused without `stream` |
| `stop`, `stop_token_ids`, `min_completion_tokens` | dropped | they could end it early, and shape no prompt |
| `structured_outputs`, `guided_*` | dropped | they shape the answer; `response_format` and `tool_choice` stay |

Decode gets the client's body, byte for byte in each field, and the connector's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.wire.request import COMPLETIONS, ClientRequest

_ONE, _TRUE, _FALSE = msgspec.Raw(b"1"), msgspec.Raw(b"true"), msgspec.Raw(b"false")

SET = {"max_tokens": _ONE, "min_tokens": _ONE, "ignore_eos": _TRUE, "n": _ONE, "stream": _FALSE}
SET_IF_GIVEN = {"max_completion_tokens": _ONE, "max_output_tokens": _ONE}
DROPPED = frozenset({"stream_options", "stop", "stop_token_ids", "min_completion_tokens", "structured_outputs"})
DROPPED_PREFIX = "guided_"

_encode = msgspec.json.Encoder().encode


def prefill_body(request: ClientRequest, params: Mapping[str, Any] | None) -> bytes:
    """`params` become `kv_transfer_params`; None sends none."""
    body: dict[str, Any] = {
        name: SET_IF_GIVEN.get(name, value)
        for name, value in request.fields.items()
        if name not in DROPPED and not name.startswith(DROPPED_PREFIX)
    }
    body.update(SET)
    if not _has_its_ids(request):
        body["return_token_ids"] = _TRUE
    if params is not None:
        body["kv_transfer_params"] = params
    return _encode(body)


def decode_body(request: ClientRequest, params: Mapping[str, Any] | None, prompt_token_ids: bytes | None) -> bytes:
    """`prompt_token_ids` is the JSON text of prefill's list, if it returned one.

    vLLM takes the ids for text prompts; with `echo` or media in the messages it reads the messages again by itself.
    """
    if params is None:
        return _encode(request.fields)
    if prompt_token_ids is not None:
        params = {**params, "prompt_token_ids": msgspec.Raw(prompt_token_ids)}
    return _encode({**request.fields, "kv_transfer_params": params})


def _has_its_ids(request: ClientRequest) -> bool:
    """Whether the client sent token ids itself: both legs then see the same ones anyway."""
    return request.endpoint == COMPLETIONS and bytes(request.fields.get("prompt", b"")).startswith(b"[")
