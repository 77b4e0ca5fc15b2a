"""What is handed over, and what happens when it is not."""

from __future__ import annotations

from harness import case, check, expected, kv_of, new_marker, short, visible


@case(
    "first-token-eos",
    "the first token is EOS, prefill has no handoff: an answer or an error at once, never a decode with null or made-up params",
    [4],
    "handoff",
    dirty=True,
    split=True,
)
def _(g):
    for e in g.p:
        e.rule("eosfirst")
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=6)
        p, d = g.pd(r.marker)
        check(r.status, f"the client waits without an answer; {g.trail(r.marker)}")
        if any(c["body"].get("ignore_eos") for c in p):
            g.good(r)
            continue
        for c in d:
            check("kv_transfer_params" not in c["body"] or kv_of(c), "decode was called with kv_transfer_params null")
            check(
                not (kv_of(c) or {}).get("do_remote_prefill"),
                f"decode was told to fetch KV that nobody holds: {short(kv_of(c))}",
            )
        if r.status == 200:
            check(r.complete, r.brief())
            check(r.text() in (expected(r.marker, 4), expected(r.marker, 1), ""), f"odd text {short(r.text())!r}")
        else:
            g.refused(r, range(400, 600))


@case("token-budget", "exactly the asked number of tokens, the first neither lost nor doubled", [35], "handoff")
def _(g):
    for n in (2, 8, 33):
        for stream in (True, False):
            g.good(g.ask(n=n, stream=stream), n)
    m, b = g.comp(n=8, stream=True)
    r = g.send(b, "/v1/completions")
    r.marker = m
    g.good(r, 8)
    m, b = g.comp(n=8)
    r = g.send(b, "/v1/completions")
    r.marker = m
    g.good(r, 8)
    check(r.json()["usage"]["completion_tokens"] == 8, f"usage says {r.json()['usage']}")


@case(
    "completions-legs",
    "/v1/completions is split too: prefill one token, decode with the handoff",
    ["brief", 2],
    "handoff",
    split=True,
)
def _(g):
    m, b = g.comp(n=5, stream=True, stop=["zzz"])
    r = g.send(b, "/v1/completions")
    r.marker = m
    g.good(r, 5)
    p, d = g.pd(m)
    check(len(p) == 1 and len(d) == 1, g.trail(m))
    check(
        p[0]["path"].startswith("/v1/completions")
        and p[0]["body"].get("max_tokens") == 1
        and not p[0]["body"].get("stream"),
        f"prefill body {short(p[0]['body'])}",
    )
    check(
        d[0]["body"]["prompt"] == b["prompt"] and (kv_of(d[0]) or {}).get("do_remote_prefill"),
        f"decode body {short(d[0]['body'])}",
    )


@case(
    "handoff-verbatim",
    "decode gets prefill's kv_transfer_params whole, also fields that this gateway does not know",
    ["brief", 35],
    "handoff",
    split=True,
)
def _(g):
    for stream in (True, False):
        r = g.ask(stream=stream)
        g.good(r)
        p, d = g.pd(r.marker)
        check(len(p) == 1 and len(d) == 1, g.trail(r.marker))
        k = kv_of(p[0]) or {}
        check(
            k.get("do_remote_decode") is True and not k.get("do_remote_prefill"),
            f"prefill's kv_transfer_params: {short(k)}",
        )
        h = kv_of(d[0]) or {}
        check(h.get("do_remote_prefill") is True, f"decode's kv_transfer_params: {short(h)}")
        want = {
            "do_remote_decode": False,
            "remote_engine_id": p[0]["engine_id"],
            "remote_port": p[0]["port"] + 1000,
            "remote_host": "127.0.0.1",
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": 7,
            "transfer_mode": "pull",
        }
        for a, v in want.items():
            check(h.get(a) == v, f"decode's {a} is {h.get(a)!r}, prefill said {v!r}")
        check(p[0]["t_head"] <= d[0]["t"], "decode was called before prefill had answered")


@case(
    "no-handoff-not-silent",
    "prefill answers 200 without kv_transfer_params: an error, another prefill, or a visible bypass; never null to decode",
    [5],
    "handoff",
    dirty=True,
    split=True,
)
def _(g):
    for mode in ("nokv", "kvabsent"):
        for e in g.p:
            e.ok()
            e.rule(mode)
        before = g.metrics()
        for stream in (True, False):
            r = g.ask(stream=stream, timeout=6)
            _p, d = g.pd(r.marker)
            check(r.status, f"no answer in 6 s; {g.trail(r.marker)}")
            for c in d:
                check(
                    "kv_transfer_params" not in c["body"] or kv_of(c),
                    f"{mode}: decode was called with kv_transfer_params null: a silent recompute",
                )
            if d and r.status == 200:
                check(
                    visible(g, before, r),
                    f"{mode}: decode recomputed the prompt and nothing shows it (no metric or header names a fallback, bypass or recompute)",
                )
            elif r.status != 200:
                g.refused(r)


@case(
    "all-prefill-down",
    "no prefill engine left: 503, or a decode-only answer that is visible; never a silent fallback",
    [21],
    "failover",
    dirty=True,
)
def _(g):
    before = g.metrics()
    for e in g.p:
        e.down()
    r = g.ask(timeout=12)
    _p, d = g.pd(r.marker)
    check(r.status, "no answer in 12 s")
    if r.status == 200:
        check(
            not any("kv_transfer_params" in c["body"] for c in d) and visible(g, before, r),
            f"decode-only without a sign of it: {r.brief()}",
        )
        g.good(r)
    else:
        g.refused(r)


@case(
    "prompt-logprobs",
    "prompt_logprobs: from prefill, not asked of decode with remote KV (it crashes there); or a clear 400",
    [31],
    "handoff",
    dirty=True,
    split=True,
)
def _(g):
    m, b = g.chat(stream=False, prompt_logprobs=1)
    r = g.send(b)
    r.marker = m
    _p, d = g.pd(m)
    if r.status == 400:
        return
    for c in d:
        check(
            not (kv_of(c) and c["body"].get("prompt_logprobs") is not None),
            f"decode was asked for prompt_logprobs over remote KV; the client got {r.status}",
        )
    g.good(r)
    check(r.json().get("prompt_logprobs"), "the client asked for prompt_logprobs and got none")


@case(
    "completions-echo",
    "echo=true: the prompt comes once in front of the answer, decode is not asked to echo over remote KV; or a clear 400",
    [31],
    "handoff",
    dirty=True,
    split=True,
)
def _(g):
    m, b = g.comp(n=4, echo=True)
    r = g.send(b, "/v1/completions")
    _p, d = g.pd(m)
    if r.status == 400:
        return
    for c in d:
        check(
            not (kv_of(c) and c["body"].get("echo")),
            f"decode was asked to echo over remote KV; the client got {r.status}",
        )
    check(r.status == 200 and r.text() == b["prompt"] + expected(m, 4), f"{r.brief()}; {g.trail(m)}")


@case("logprobs-complete", "logprobs of every token, also the first", [32], "handoff")
def _(g):
    m, b = g.chat(n=5, stream=False, logprobs=True, top_logprobs=2)
    r = g.send(b)
    r.marker = m
    g.good(r, 5)
    lp = (r.json()["choices"][0].get("logprobs") or {}).get("content") or []
    check([x["token"] for x in lp] == [f"t{i}" for i in range(5)], f"logprobs of {[x.get('token') for x in lp]}")
    m, b = g.chat(n=5, logprobs=True, top_logprobs=2)
    r = g.send(b)
    r.marker = m
    g.good(r, 5)
    lp = [x["token"] for _, o in r.objs() for c in o["choices"] if c.get("logprobs") for x in c["logprobs"]["content"]]
    check(lp == [f"t{i}" for i in range(5)], f"streamed logprobs of {lp}")


@case(
    "prompt-list",
    "a list of prompts never shares one handoff: fan out, bypass, or a clear 400",
    [34],
    "handoff",
    split=True,
)
def _(g):
    a, c = new_marker(), new_marker()
    r = g.send({"model": g.model, "prompt": [f"say {a}", f"say {c}"], "max_tokens": 3}, "/v1/completions")
    _p, d = g.pd(a)
    for x in d:
        check(
            not (kv_of(x) and isinstance(x["body"]["prompt"], list) and len(x["body"]["prompt"]) > 1),
            f"one decode call with {len(x['body']['prompt'])} prompts and one handoff: they would share remote blocks",
        )
    if r.status == 400:
        return
    check(r.status == 200, r.brief())
    check(r.text(0) == expected(a, 3) and r.text(1) == expected(c, 3), f"choices mixed up: {r.brief()}")
