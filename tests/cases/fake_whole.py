"""An answer that is not streamed, and the ways in which a rule makes it go wrong."""

import asyncio
import json

from fake_words import now, token


async def whole(w, a):
    e = a.e
    if a.wait:
        await asyncio.sleep(a.wait / 1000)
    if e.set["itl_ms"] and e.role != "prefill":
        await asyncio.sleep(e.set["itl_ms"] * a.lim / 1000)
    data = json.dumps(_body(a), ensure_ascii=False).encode()
    a.r["sent"] = a.lim
    if a.mode == "slow_body":
        return await _slow(w, a, data)
    if a.mode == "bad_json":
        w.reply(200, data[: len(data) // 2])
        return w.finish("done")
    if a.mode == "short_body" or a.mode.endswith("_after") or a.mode in ("headers_reset", "empty_stream"):
        return await _half(w, a, data)
    w.reply(200, data)
    return w.finish("done")


async def _slow(w, a, data):
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    w.tr.write(head.encode())
    a.r["t_head"] = now()
    a.r["status"] = 200
    await asyncio.sleep(a.rule["ms"] / 1000)
    w.tr.write(data)
    w.finish("done")


async def _half(w, a, data):
    if a.mode == "stall_after":
        w.reply(200, data[:20], declare=len(data))
        await asyncio.sleep(3600)
    w.reply(200, data[: len(data) // 2], declare=len(data))
    await asyncio.sleep(0.02)
    if "reset" in a.mode:
        return w.reset(a.mode)
    w.finish("reset", a.mode)
    w.tr.close()


def _body(a):
    j = {
        **a.base,
        "object": "chat.completion" if a.chat else "text_completion",
        "choices": [_choice(a, ix, m) for ix, (m, _) in enumerate(a.choices)],
        "usage": a.usage(),
        "service_tier": None,
        "system_fingerprint": "fake",
    }
    if a.chat:
        j["prompt_logprobs"] = a.prompt_logprobs
    if a.p == "/v1/responses":
        j = _response(a)
    if a.mode != "kvabsent":
        j["kv_transfer_params"] = a.kv
    return j


def _choice(a, ix, m):
    text = "".join(a.text(m, i) for i in range(a.lim))
    ch = {"index": ix, "logprobs": _logprobs(a), "finish_reason": a.finish, "stop_reason": None}
    if a.chat:
        return {**ch, "message": {"role": "assistant", "content": text, "refusal": None}}
    return {**ch, "text": text, "prompt_logprobs": a.prompt_logprobs}


def _logprobs(a):
    if not a.b.get("logprobs"):
        return None
    parts = [a.logprobs(i) for i in range(a.lim)]
    if a.chat:
        return {"content": [x for q in parts for x in q["content"]]}
    return {
        "tokens": [q["tokens"][0] for q in parts],
        "token_logprobs": [q["token_logprobs"][0] for q in parts],
        "text_offset": [0] * a.lim,
        "top_logprobs": None,
    }


def _response(a):
    text = "".join(token(a.marks[0], i) for i in range(a.lim))
    content = [{"type": "output_text", "text": text}]
    return {
        "id": "resp_" + a.r["eid"],
        "object": "response",
        "status": "completed",
        "model": a.e.model,
        "output": [{"type": "message", "role": "assistant", "content": content}],
    }
