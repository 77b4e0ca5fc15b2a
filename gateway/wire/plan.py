"""Which requests cannot be split rightly. They go whole to one decode engine, counted by reason.

| reason | what it is | what a split would do |
| --- | --- | --- |
| `several_prompts` | completions with more than one prompt | load the first prompt's KV for all of them, silently |
| `several_answers` | `n` above 1 | let the first answer's fetch free the KV of the others; vLLM 0.32 hangs then |
| `prompt_embeds` | a prompt, or a part of one, made of embeddings | hand over KV that is counted in token ids |
| `prompt_logprobs` | log-probabilities of the prompt | recompute the whole prompt on decode, silently |
| `echo_logprobs` | `echo` that makes the engine compute those | the same |
| `echo_only` | completions with `echo` and `max_tokens` 0 | prefill for an answer that has no decode |
| `echo` | any other `echo` | fetch KV for an answer that begins with the prompt: some engines die of it |
| `beam_search` | `use_beam_search` | each beam is a request of its own; the KV is there once |
| `truncate_to_fit` | chat with `truncate_prompt_tokens` -1 and no `max_tokens` | cut one token more on prefill |

Everything else is split: `logprobs`, tools and structured output were all seen to give the unsplit answer (and so was
`echo` on vLLM 0.32; older engines were reported to crash on it).
An engine reads loosely (`"true"` and 1 are true), so a rule that is in doubt applies: unsplit is always right.
"""

from __future__ import annotations

import msgspec

from gateway.wire.request import CHAT, COMPLETIONS, ClientRequest


def unsplit_reason(request: ClientRequest) -> str | None:
    """The reason as the metric names it; None for a request that can be split."""
    for reason, applies in RULES.items():
        if applies(request):
            return reason
    return None


def _several_prompts(request: ClientRequest) -> bool:
    raw = bytes(request.fields.get("prompt", b""))
    if request.endpoint != COMPLETIONS or not raw.startswith(b"["):
        return False
    try:
        entries = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except RecursionError:
        return True
    return len(entries) > 1 and bytes(entries[0])[:1] in (b"[", b'"')


def _prompt_embeds(request: ClientRequest) -> bool:
    """In chat they are parts of messages."""
    return "prompt_embeds" in request.media or (request.endpoint == COMPLETIONS and request.given("prompt_embeds"))


def _echo_logprobs(request: ClientRequest) -> bool:
    """Chat with `echo` asks for prompt log-probabilities always, completions only with `logprobs`."""
    return request.has("echo") and (request.endpoint == CHAT or request.given("logprobs"))


def _echo_only(request: ClientRequest) -> bool:
    return request.endpoint == COMPLETIONS and request.has("echo") and request.integer("max_tokens") == 0


def _truncate_to_fit(request: ClientRequest) -> bool:
    """vLLM leaves room for an answer only where a length is asked for; prefill always asks for one token.

    Completions ask for 16 tokens where the client names no length. Source: vLLM 0.32, `TokenizeParams`.
    """
    if request.endpoint != CHAT or request.integer("truncate_prompt_tokens") != -1:
        return False
    length = "max_completion_tokens" if request.given("max_completion_tokens") else "max_tokens"
    return not request.integer(length)


RULES = {
    "several_prompts": _several_prompts,
    "several_answers": lambda r: (r.integer("n") or 1) > 1,
    "prompt_embeds": _prompt_embeds,
    "prompt_logprobs": lambda r: r.given("prompt_logprobs"),
    "echo_logprobs": _echo_logprobs,
    "echo_only": _echo_only,
    "echo": lambda r: r.has("echo"),
    "beam_search": lambda r: r.has("use_beam_search"),
    "truncate_to_fit": _truncate_to_fit,
}
"""Reason -> whether it applies."""
