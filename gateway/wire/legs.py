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
| `allowed_token_ids` | dropped | of end tokens only it would leave, beside `min_tokens`, none to choose |
| `logprobs`, `top_logprobs`, `logprob_token_ids` | dropped | work for a token that nobody sees; decode has them all |
| `best_of` | dropped | no use for one token; vLLM 0.32 does not know it, others would make more sequences |
| `echo`, `return_prompt_text` | dropped | the prompt's text in a reply that nobody reads |
| `return_token_ids` | true, or dropped | true where decode takes the prompt's ids (`takes_prompt_ids`) |

Decode gets the client's body, byte for byte in each field that `added.py` does not name, and the connector's
parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.wire.request import CHAT, COMPLETIONS, ClientRequest

_ONE, _TRUE, _FALSE = msgspec.Raw(b"1"), msgspec.Raw(b"true"), msgspec.Raw(b"false")

SET = {"max_tokens": _ONE, "min_tokens": _ONE, "ignore_eos": _TRUE, "n": _ONE, "stream": _FALSE}
SET_IF_GIVEN = {"max_completion_tokens": _ONE, "max_output_tokens": _ONE}
DROPPED_ON_PREFILL = frozenset(
    {
        "allowed_token_ids",
        "best_of",
        "echo",
        "logprob_token_ids",
        "logprobs",
        "min_completion_tokens",
        "return_prompt_text",
        "return_token_ids",
        "stop",
        "stop_token_ids",
        "stream_options",
        "structured_outputs",
        "top_logprobs",
    }
)
DROPPED_PREFIX = "guided_"

_encode = msgspec.json.Encoder().encode


def prefill_body(request: ClientRequest, params: Mapping[str, Any] | None) -> bytes:
    """`params` become `kv_transfer_params`; None sends none."""
    body: dict[str, Any] = {
        name: SET_IF_GIVEN.get(name, value)
        for name, value in request.fields.items()
        if name not in DROPPED_ON_PREFILL and not name.startswith(DROPPED_PREFIX)
    }
    body.update(SET)
    if takes_prompt_ids(request):
        body["return_token_ids"] = _TRUE
    if params is not None:
        body["kv_transfer_params"] = params
    return _encode(body)


def decode_body(request: ClientRequest, params: Mapping[str, Any] | None, prompt_token_ids: bytes | None) -> bytes:
    """`params` become `kv_transfer_params`; None sends none.

    `prompt_token_ids` is the JSON text of prefill's list. Prefill returns one only if it was asked, so it is None for
    every request that `takes_prompt_ids` says no to.
    """
    if params is None:
        return _encode(request.fields)
    if prompt_token_ids is not None:
        params = {**params, "prompt_token_ids": msgspec.Raw(prompt_token_ids)}
    return _encode({**request.fields, "kv_transfer_params": params})


RELEASE_PATH = COMPLETIONS


def release_body(model: str, params: Mapping[str, Any]) -> bytes:
    """A decode body that frees the KV of a handoff and computes nothing.

    It is well formed, so that vLLM reads its `kv_transfer_params`, and asks for no answer (`n` 0), so that its handler
    refuses it and tells prefill. What vLLM refuses before its handler, for a field of a wrong type say, frees nothing.
    Source: vLLM 0.32, `generate/base/serving.py`, `_with_kv_transfer_rejection_cleanup`.
    """
    return _encode({"model": model, "prompt": "-", "max_tokens": 1, "n": 0, "kv_transfer_params": params})


def takes_prompt_ids(request: ClientRequest) -> bool:
    """Whether decode is sent the token ids that prefill made of the prompt, so that it need not make them again.

    | request | | why (vLLM 0.32, `renderers/online_renderer.py`) |
    | --- | --- | --- |
    | chat, text only | yes | decode takes them in place of the messages and parses the answer as ever |
    | chat with media | no | decode must read the messages for the media, and ignores the ids |
    | chat with `return_prompt_text` | no | decode has the text only if it renders the messages |
    | completions | no | decode does not look for them: the prompt alone, text or ids, gives the same ones |
    """
    return request.endpoint == CHAT and not request.media and not request.has("return_prompt_text")
