"""What vLLM refuses, in its words."""

from fake_words import err


def refuse(e, p, h, b, r, authed):
    """vLLM's own refusals: (status, body) or (0, None)."""
    if not authed:
        return 401, {"error": "Unauthorized"}
    if p not in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/videos", "/v1/audio/speech"):
        return 404, {"detail": "Not Found"}
    if not isinstance(b, dict):
        return 400, err(400, "1 validation error: JSON decode error", "Bad Request", "body")
    if b.get("model") not in (None, e.model):
        return 404, err(404, f"The model `{b.get('model')}` does not exist.", None, "model")
    if r["dup"]:
        return 400, err(400, f"Request id {h.get('x-request-id')} already running")
    lim = b.get("max_completion_tokens") or b.get("max_tokens") or b.get("max_output_tokens")
    if b.get("max_tokens") is not None and b["max_tokens"] < 1:
        return 400, err(400, f"max_tokens must be at least 1, got {b['max_tokens']}.", None, "max_tokens")
    if lim and (b.get("min_tokens") or 0) > lim:
        return 400, err(400, f"min_tokens must be less than or equal to max_tokens={lim}, got {b['min_tokens']}.")
    if b.get("stream_options") is not None and not b.get("stream"):
        return 400, err(400, "Stream options can only be defined when `stream=True`.", "Bad Request", "stream_options")
    k = b.get("kv_transfer_params")
    if k is not None and not isinstance(k, dict):
        return 400, err(400, "Input should be a valid dictionary", "Bad Request", "body.kv_transfer_params")
    if p == "/v1/chat/completions" and not b.get("messages"):
        return 400, err(400, "messages must not be empty", None, "messages")
    if p == "/v1/completions" and not b.get("prompt"):
        return 400, err(
            400,
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
            None,
            "prompt",
        )
    if e.set["max_chars"] and len(r["raw"]) > e.set["max_chars"]:
        return 400, err(
            400,
            f"This model's maximum context length is 2048 tokens. However, your prompt contains {len(r['raw'])} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={len(r['raw'])})",
            None,
            "input_tokens",
        )
    if (
        k
        and k.get("do_remote_prefill")
        and e.kv == "nixl"
        and not (k.get("remote_engine_id") and k.get("remote_host") and k.get("remote_block_ids"))
    ):
        return 500, err(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
    if k and k.get("do_remote_prefill") and (b.get("prompt_logprobs") is not None or b.get("echo")):
        return 500, err(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
    return 0, None
