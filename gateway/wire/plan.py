"""Which requests cannot be split rightly. They go whole to one decode engine, counted by reason.

| reason | what it is | what a split would do |
| --- | --- | --- |
| `several_prompts` | completions with more than one prompt | load the first prompt's KV for all of them, silently |
| `prompt_embeds` | completions from embeddings | NIXL counts token ids, so decode would prefill it all again |
| `prompt_logprobs` | log-probabilities of the prompt | recompute the whole prompt on decode, silently |
| `echo_logprobs` | `echo` that makes the engine compute those | the same |
| `echo_only` | `echo` with `max_tokens` 0 | prefill for an answer that has no decode |
| `beam_search` | `use_beam_search`, `best_of` above 1 | each beam is a request of its own; the KV is there once |
| `truncate_to_fit` | `truncate_prompt_tokens` -1 | cut by `max_tokens`, which differs between legs |

Everything else is split: `n`, `logprobs`, `echo`, tools and structured output were all seen to give the unsplit answer.
"""

from __future__ import annotations

import msgspec

from gateway.wire.request import CHAT, COMPLETIONS, ClientRequest


def unsplit_reason(request: ClientRequest) -> str | None:
    """The reason as the metric names it; None for a request that can be split."""
    for reason, applies in _RULES:
        if applies(request):
            return reason
    return None


def _several_prompts(request: ClientRequest) -> bool:
    raw = bytes(request.fields.get("prompt", b""))
    if request.endpoint != COMPLETIONS or not raw.startswith(b"["):
        return False
    try:
        entries = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.DecodeError:
        return False
    return len(entries) > 1 and bytes(entries[0])[:1] in (b"[", b'"')


def _echo_logprobs(request: ClientRequest) -> bool:
    """Chat with `echo` asks for prompt log-probabilities always, completions only with `logprobs`."""
    return request.has("echo") and (request.endpoint == CHAT or request.has("logprobs"))


def _equals(request: ClientRequest, name: str, value: int) -> bool:
    try:
        return bool(msgspec.json.decode(request.fields.get(name, b"null")) == value)
    except msgspec.DecodeError:
        return False


def _best_of(request: ClientRequest) -> bool:
    return request.has("best_of") and not _equals(request, "best_of", 1)


_RULES = (
    ("several_prompts", _several_prompts),
    ("prompt_embeds", lambda r: r.endpoint == COMPLETIONS and r.has("prompt_embeds")),
    ("prompt_logprobs", lambda r: r.has("prompt_logprobs")),
    ("echo_logprobs", _echo_logprobs),
    ("echo_only", lambda r: r.has("echo") and _equals(r, "max_tokens", 0)),
    ("beam_search", lambda r: r.has("use_beam_search") or _best_of(r)),
    ("truncate_to_fit", lambda r: _equals(r, "truncate_prompt_tokens", -1)),
)
