"""What prefill and decode are sent."""

from __future__ import annotations

from harness import Skip, both_legs, case, check, expected, kv_of, limit, new_marker, short


@case("prefill-min-tokens", "min_tokens=100: prefill gets at most 1, decode keeps 100", [1], "body", split=True)
def _(g):
    r, _b, p, d = both_legs(g, n=120, min_tokens=100)
    check(
        (p.get("min_tokens") or 0) <= 1,
        f"prefill got min_tokens={p.get('min_tokens')} with max_tokens={p.get('max_tokens')}",
    )
    check(d.get("min_tokens") == 100, f"decode's min_tokens is {d.get('min_tokens')}, the client's was 100")
    g.good(r, 120)


@case("prefill-min-completion-tokens", "the same for min_completion_tokens", [1], "body", split=True)
def _(g):
    r, _b, p, d = both_legs(g, n=..., max_completion_tokens=120, min_completion_tokens=100)
    check(
        (p.get("min_completion_tokens") or 0) <= 1,
        f"prefill got min_completion_tokens={p.get('min_completion_tokens')}",
    )
    check(
        d.get("min_completion_tokens") == 100,
        f"decode's min_completion_tokens is {d.get('min_completion_tokens')}",
    )
    g.good(r, 120)


@case(
    "prefill-max-tokens",
    "prefill makes one token: max_tokens=1, also with max_completion_tokens; decode has the originals",
    [2],
    "body",
    split=True,
)
def _(g):
    r, b, p, d = both_legs(g, n=50)
    check(
        limit(p) == 1 and p.get("max_tokens") in (1, None),
        f"prefill's limits are {p.get('max_tokens')} and {p.get('max_completion_tokens')}",
    )
    check(limit(d) == 50, f"decode's limit is {limit(d)}, not 50")
    g.good(r, 50)
    r, _b, p, d = both_legs(g, n=..., max_completion_tokens=40)
    check(
        p.get("max_tokens") in (1, None)
        and p.get("max_completion_tokens") in (1, None)
        and 1 in (p.get("max_tokens"), p.get("max_completion_tokens")),
        f"prefill may run long: max_tokens={p.get('max_tokens')} max_completion_tokens={p.get('max_completion_tokens')}",
    )
    check(limit(d) == 40, f"decode's limit is {limit(d)}, not 40")
    check(d.get("max_tokens") in (None, 40), f"decode got an invented max_tokens={d.get('max_tokens')}")
    g.good(r, 40)


@case(
    "responses-max-output-tokens",
    "/v1/responses: prefill's max_output_tokens is 1 (skipped where not offered)",
    [2],
    "body",
    split=True,
)
def _(g):
    m = new_marker()
    r = g.send({"model": g.model, "input": f"say {m}", "max_output_tokens": 30}, path="/v1/responses")
    if r.status in (404, 405, 501):
        raise Skip("no /v1/responses here")
    p, d = g.pd(m)
    check(r.status == 200 and p + d, f"{r.brief()}; {g.trail(m)}")
    for c in p:
        check(
            (c["body"].get("max_output_tokens") or c["body"].get("max_tokens")) == 1,
            f"prefill generates on: {short(c['body'])}",
        )
    for c in d:
        check(
            30
            in (
                c["body"].get("max_output_tokens"),
                c["body"].get("max_tokens"),
                c["body"].get("max_completion_tokens"),
            ),
            f"decode lost the limit: {short(c['body'])}",
        )


@case("prefill-stream-options", "prefill is asked without stream and without stream_options", [3], "body", split=True)
def _(g):
    r, _b, p, d = both_legs(g, stream_options={"include_usage": True})
    check(not p.get("stream"), "prefill was asked to stream: vLLM's stream chunks carry no kv_transfer_params")
    check(
        p.get("stream_options") is None,
        f"prefill got stream_options={p.get('stream_options')} with stream false: vLLM answers 400",
    )
    check(
        d.get("stream") is True and (d.get("stream_options") or {}).get("include_usage") is True,
        f"decode lost stream/stream_options: {short(d)}",
    )
    g.good(r)


@case(
    "prefill-no-stop",
    "prefill carries no stop conditions (a stop at the first token leaves no handoff); decode keeps them",
    [4],
    "body",
    split=True,
)
def _(g):
    r, _b, p, d = both_legs(g, stop=["\n\n", "END"], stop_token_ids=[2, 151645])
    check(
        not p.get("stop") and not p.get("stop_token_ids"),
        f"prefill got stop={p.get('stop')} stop_token_ids={p.get('stop_token_ids')}",
    )
    check(
        d.get("stop") == ["\n\n", "END"] and d.get("stop_token_ids") == [2, 151645],
        f"decode's stop={d.get('stop')} stop_token_ids={d.get('stop_token_ids')}",
    )
    g.good(r)


@case("n-choices", "n=3: prefill makes one sequence, decode three; or a clear 400", [33], "body", split=True)
def _(g):
    m, b = g.chat(n=3, stream=False)
    b["n"] = 3
    r = g.send(b)
    p, _d = g.pd(m)
    if r.status == 400:
        return
    check(r.status == 200, r.brief())
    for c in p:
        check(
            not kv_of(c) or c["body"].get("n") in (None, 1),
            f"prefill was asked for n={c['body'].get('n')}: three sequences, one handoff",
        )
    for i in range(3):
        check(r.text(i) == expected(m, 3), f"choice {i} is {short(r.text(i))!r}")


@case(
    "decode-keeps-originals",
    "decode gets every field of the client unchanged: messages, numbers, nulls, unknown vendor fields",
    ["brief", 38],
    "body",
)
def _(g):
    extra = {
        "temperature": 0.5,
        "top_p": 0.75,
        "seed": 12345,
        "logit_bias": {"50256": -100},
        "presence_penalty": -0.25,
        "user": "zoë \u65e5\u672c \U0001f600",
        "top_k": 40,
        "min_p": 0.125,
        "repetition_penalty": 1.25,
        "x_vendor": {"a": [1, 2.5, None, "é", {"b": False}]},
        "chat_template_kwargs": {"enable_thinking": False},
        "metadata": {"k": "v"},
        "bad_words": ["zz"],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "d",
                    "parameters": {"type": "object", "properties": {"q": {"type": "string", "x-odd": 1}}},
                },
            }
        ],
        "tool_choice": "auto",
    }
    m = new_marker()
    msgs = [
        {"role": "system", "content": 's\u0000\u2028 "quoted" \\ back'},
        {"role": "user", "content": f"say {m}", "name": "bob"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "user", "content": "go on"},
    ]
    b = {"model": g.model, "messages": msgs, "max_tokens": 4, "stream": True, **extra}
    r = g.send(b)
    _p, d = g.pd(m)
    r.marker = m
    g.good(r)
    check(len(d) == 1, f"decode was called {len(d)} times")
    got = d[0]["body"]
    lean = lambda ms: [{k: v for k, v in x.items() if v is not None} for x in ms]  # null or absent is the same
    check(lean(got.get("messages") or []) == lean(msgs), f"messages changed: {short(got.get('messages'), 500)}")
    check(
        limit(got) == 4, f"decode's limit is {limit(got)}, the client's was 4"
    )  # max_completion_tokens means the same
    for k, v in b.items():
        if k not in ("messages", "max_tokens"):
            check(
                got.get(k) == v and type(got.get(k)) is type(v),
                f"decode's {k} is {short(got.get(k))}, the client's was {short(v)}",
            )


@case(
    "numbers-exact",
    "numbers reach decode exactly: 0.1 is not turned into a 32-bit 0.10000000149, large seeds keep their digits, 1 stays whole",
    ["brief"],
    "body",
)
def _(g):
    nums = {
        "temperature": 0.1,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "frequency_penalty": -0.7,
        "seed": 2**63 - 1,
        "x_big": 2**60 + 1,
        "x_float": 1e-7,
        "top_k": 1,
    }
    r, _b, _p, d = both_legs(g, **nums)
    for k, v in nums.items():
        check(repr(d.get(k)) == repr(v), f"decode's {k} is {d.get(k)!r}, the client's was {v!r}")
    g.good(r)


@case(
    "prefill-same-prompt",
    "prefill gets the same prompt and rendering inputs as decode (else the KV is of another prompt)",
    ["brief", 38],
    "body",
)
def _(g):
    same = {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": True,
        "cache_salt": "salt-1",
        "mm_processor_kwargs": {"fps": 2},
        "documents": [{"t": "x"}],
    }
    r, b, p, d = both_legs(g, **same)
    for k in ("messages", *same):
        check(
            p.get(k) == b[k] and d.get(k) == b[k],
            f"{k}: prefill {short(p.get(k), 120)}, decode {short(d.get(k), 120)}, client {short(b[k], 120)}",
        )
    g.good(r)


@case("multimodal-parts", "image and audio parts with their uuids reach both legs identically", [38], "body")
def _(g):
    m = new_marker()
    parts = [
        {"type": "text", "text": f"say {m}"},
        {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
            "uuid": "img-1",
        },
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,UklGRg=="}, "uuid": "aud-1"},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    ]
    r = g.send({"model": g.model, "messages": [{"role": "user", "content": parts}], "max_tokens": 3, "stream": True})
    r.marker = m
    g.good(r, 3)
    p, d = g.pd(m)
    for c in p + d:
        check(
            c["body"]["messages"][0]["content"] == parts,
            f"{c['name']} got other parts: {short(c['body']['messages'], 500)}",
        )


@case(
    "max-tokens-absent",
    "no max_tokens from the client: it works, and decode gets none invented",
    [36, 2],
    "body",
    split=True,
)
def _(g):
    r, _b, p, d = both_legs(g, n=...)
    check(
        d.get("max_tokens") is None and d.get("max_completion_tokens") is None,
        f"decode got max_tokens={d.get('max_tokens')} max_completion_tokens={d.get('max_completion_tokens')}",
    )
    check(p.get("max_tokens") == 1 or p.get("max_completion_tokens") == 1, "prefill has no limit of one token")
    g.good(r, 6)


@case("max-tokens-one", "max_tokens=1 gives exactly one token (never 0 on decode)", [36], "body")
def _(g):
    for stream in (True, False):
        g.good(g.ask(n=1, stream=stream), 1)
