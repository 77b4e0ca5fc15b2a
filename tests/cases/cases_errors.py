"""What clients see when something is wrong."""

from __future__ import annotations

import time

from harness import Live, case, check, in_time, new_marker, now, short


@case("bad-json-400", "malformed JSON: 400, no engine is asked", ["brief"], "errors")
def _(g):
    m = new_marker()
    for b in (b'{"model": "x", ' + m.encode(), b"", b"[1,2]", b'"text"', b"\xff\xfe{}"):
        r = g.send(b)
        check(
            r.status in (400, 422) if b in (b"[1,2]", b'"text"') else r.status == 400,
            f"for body {b!r}: {r.brief()}",
        )
    check(not g.calls(m), "an engine was asked")


@case("bad-json-shape", "the 400 for malformed JSON has OpenAI's error shape", ["brief"], "errors")
def _(g):
    g.openai_error(g.send(b"{bad"), 400)


@case("unknown-model-404", "an unknown model: 404", ["brief"], "errors")
def _(g):
    for stream in (True, False):
        m, b = g.chat(stream=stream)
        b["model"] = "no-such-model"
        r = g.send(b)
        check(r.status == 404, f"{r.brief()}; {g.trail(m)}")


@case("unknown-model-shape", "the 404 for an unknown model has OpenAI's error shape", ["brief"], "errors")
def _(g):
    _m, b = g.chat(stream=False)
    b["model"] = "no-such-model"
    e = g.openai_error(g.send(b), 404)
    check("no-such-model" in e["message"], f"the message does not name the model: {short(e)}")


@case(
    "body-limit-413",
    "a body over the limit: 413 in OpenAI's shape, no engine is asked",
    ["brief"],
    "errors",
    needs="body_limit",
)
def _(g):
    m, b = g.chat()
    b["pad"] = "x" * int(g.opts["body_limit"])
    r = g.send(b, timeout=15)
    check(not g.calls(m), "an engine got the oversized body")
    check(r.status == 413, f"expected 413, got {r.brief()}")
    g.openai_error(r, 413)
    g.good(g.ask())


@case(
    "too-long-prompt",
    "prefill refuses a too long prompt (400): the client gets that 400 with the engine's message, decode is never called",
    [42],
    "errors",
)
def _(g):
    for e in g.engines:
        e.set(max_chars=3000)
    for stream in (True, False):
        m, b = g.chat(stream=stream)
        b["messages"][0]["content"] += " x" * 2000
        r = g.send(b)
        p, d = g.pd(m)
        check(r.status == 400, f"{r.brief()}; {g.trail(m)}")
        check("maximum context length" in r.body.decode(), f"the engine's message is lost: {r.brief()}")
        check(not d or not g.split, "decode was called for a prompt that prefill refused")
        check(len(p) == 1, f"a 400 was retried: {g.trail(m)}")


@case("decode-400", "decode refuses with 400: the client gets it, nothing is retried", [20, "brief"], "errors")
def _(g):
    for e in g.d:
        e.rule("http", status=400)
    for stream in (True, False):
        r = g.ask(stream=stream)
        p, d = g.pd(r.marker)
        check(r.status == 400, f"{r.brief()}; {g.trail(r.marker)}")
        check(len(d) == 1 and len(p) <= 1, f"a 4xx was retried: {g.trail(r.marker)}")
        check(r.ctype == "application/json" and "engine says 400" in r.body.decode(), r.brief())
        r.json()


@case(
    "prefill-abort-200",
    "prefill answers 200 with finish_reason abort and no content: an error, decode is not called on it",
    [42],
    "errors",
    dirty=True,
    split=True,
)
def _(g):
    for e in g.p:
        e.rule("finish_abort")
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=6)
        _p, d = g.pd(r.marker)
        check(r.status, "no answer in 6 s")
        check(not d, f"decode was called after prefill aborted: {r.brief()}; {g.trail(r.marker)}")
        g.refused(r, range(400, 600))


@case(
    "engine-5xx-shape",
    "every prefill, or every decode, answers 500: the client's 5xx is JSON in OpenAI's shape",
    ["brief"],
    "errors",
    dirty=True,
)
def _(g):
    for pool in (g.p, g.d):
        for e in pool:
            e.rule("http", status=500)
        for stream in (True, False):
            g.openai_error(g.ask(stream=stream, timeout=10), range(500, 600))
        for e in pool:
            e.ok()
        if pool is g.p:
            g.wait(lambda: g.is_good(g.ask()), 20, "no service 20 s after prefill recovered")


@case(
    "rate-limited",
    "every prefill answers 429: the client sees 429 or 503 as JSON, Retry-After kept, decode not called",
    ["brief"],
    "errors",
    dirty=True,
)
def _(g):
    for e in g.p:
        e.rule("http", status=429, headers={"retry-after": "7"})
    r = g.ask(timeout=8)
    _p, d = g.pd(r.marker)
    check(r.status in (429, 503), f"{r.brief()}; {g.trail(r.marker)}")
    check(r.header("retry-after"), "no Retry-After")
    check(r.ctype == "application/json", r.brief())
    check(not d or not g.split, "decode was called")


@case(
    "all-down-503",
    "every engine down: 503 at once, JSON in OpenAI's shape, Retry-After",
    [22, "brief"],
    "errors",
    dirty=True,
)
def _(g):
    for e in g.engines:
        e.down()
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=12)
        check(r.status == 503, f"expected 503, got {r.brief()}")
        check(r.header("retry-after"), f"no Retry-After: {r.brief()}")
        g.openai_error(r, 503)


@case(
    "decode-down-503",
    "every decode down: 503 with a message and Retry-After, no prefill left running",
    [22],
    "errors",
    dirty=True,
)
def _(g):
    for e in g.d:
        e.down()
    r = g.ask(timeout=12)
    check(r.status == 503, f"expected 503, got {r.brief()}; {g.trail(r.marker)}")
    check(r.header("retry-after"), "no Retry-After")
    check(len(r.body) > 10, "no message")
    g.quiet()


@case(
    "retry-after-recovery",
    "engines down and up again: service returns by itself within 20 s",
    [7, 22],
    "failover",
    dirty=True,
    timeout=60,
)
def _(g):
    for e in g.engines:
        e.down()
    for _ in range(6):
        g.ask(timeout=6)
    for e in g.engines:
        e.up()
    t = now()
    while not g.is_good(g.ask(timeout=6)):
        in_time(now() - t < 20, "still refused 20 s after the engines came back")
        time.sleep(0.3)
    time.sleep(1)
    for _ in range(4):
        g.good(g.ask())


@case("wrong-method-405", "GET on a POST endpoint: 405", ["brief"], "api")
def _(g):
    for p in ("/v1/chat/completions", "/v1/completions"):
        r = g.get(p)
        check(r.status == 405, f"GET {p}: {r.brief()}")


@case("health-200", "GET /health is 200 while engines are well", ["brief"], "api")
def _(g):
    r = g.get("/health")
    check(r.status == 200, r.brief())


@case("models", "GET /v1/models lists the model in OpenAI's shape", ["brief"], "api")
def _(g):
    r = g.get("/v1/models")
    check(r.status == 200 and r.ctype == "application/json", r.brief())
    j = r.json()
    check(
        j.get("object") == "list"
        and any(x.get("id") == g.model and x.get("object") == "model" for x in j.get("data", [])),
        r.brief(),
    )


@case("unknown-path-404", "an unknown path: 404 (from the gateway or passed through)", ["brief"], "api")
def _(g):
    _m, b = g.chat()
    r = g.send(b, path="/v1/no/such/thing")
    check(r.status == 404 and r.complete, r.brief())


@case(
    "request-framing",
    "chunked request bodies and a 2 MB prompt arrive whole; one client connection serves several requests",
    ["brief"],
    "api",
)
def _(g):
    m, b = g.chat()
    r = g.send(b, chunked=True)
    r.marker = m
    g.good(r)
    big = 800_000 if int(g.opts.get("body_limit", 1 << 30)) <= 2_100_000 else 2_000_000
    m, b = g.chat()
    b["messages"][0]["content"] += " " + "é" * (big // 2)
    r = g.send(b, timeout=20)
    r.marker = m
    g.good(r)
    for c in g.calls(m):
        check(c["body"]["messages"] == b["messages"], f"{c['name']} got another prompt")
    sock = None
    for stream in (False, True, False):
        m, b = g.chat(stream=stream)
        l = Live(g.base, "POST", "/v1/chat/completions", b, sock=sock)
        r = l.read()
        r.marker = m
        g.good(r)
        sock = l.sock
