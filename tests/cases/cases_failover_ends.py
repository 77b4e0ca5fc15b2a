"""Engines that fail after their headers, and breakers."""

from __future__ import annotations

from harness import at_work, case, check, hits_mid, in_time, new_marker, now


@case(
    "decode-headers-then-dead",
    "decode sends its headers and dies before the first event: success elsewhere, a proper error, or error event and [DONE]",
    [25, "brief"],
    "failover",
    dirty=True,
)
def _(g):
    for r in g.hits(g.d[0], "headers_reset"):
        if r.status != 200:
            g.refused(r)
            continue
        g.broken_stream(r, r.marker, 4)


@case(
    "mid-stream-reset",
    "decode dies mid-stream: an error event then [DONE], or a seamless continuation; nothing doubled",
    [25, 17, "brief"],
    "failover",
    dirty=True,
)
def _(g):
    for r in hits_mid(g, "reset_after"):
        g.broken_stream(r, r.marker, 8)


@case(
    "mid-stream-error-event",
    "decode sends an error event mid-stream: it reaches the client, then exactly one [DONE]",
    [25],
    "failover",
    dirty=True,
)
def _(g):
    for r in hits_mid(g, "errevent_after"):
        g.broken_stream(r, r.marker, 8)


@case(
    "empty-stream",
    "decode answers 200 with an empty stream: never a clean empty 200",
    [25, 8],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.d:
        e.rule("empty_stream")
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=8)
        check(r.status, "no answer")
        if r.status == 200:
            g.broken_stream(r, r.marker, 4) if r.ctype == "text/event-stream" else g.good(r)
        else:
            g.refused(r)


@case(
    "no-replay-structured",
    "mid-stream death with guided decoding: no replay, an error event",
    [44],
    "failover",
    dirty=True,
)
def _(g):
    for r in hits_mid(
        g,
        "reset_after",
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    ):
        d = g.calls(r.marker, g.d)
        check(len(d) == 1, f"replayed after the first byte: {g.trail(r.marker)}")
        g.broken_stream(r, r.marker, 8)


@case(
    "truncated-json",
    "decode's JSON body is cut short: success elsewhere or a 5xx in JSON, never a cut 200",
    [25],
    "failover",
    dirty=True,
)
def _(g):
    for r in g.hits(g.d[0], "short_body", stream=False):
        if r.status == 200:
            g.good(r)
        else:
            g.refused(r)


@case(
    "finish-error-unary",
    "decode answers 200 with finish_reason error and no content: not a success for the client",
    [8],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.d:
        e.rule("finish_error")
    r = g.ask(stream=False, timeout=8)
    check(r.status != 200, f"a failed generation was passed off as success: {r.brief()}")
    g.refused(r)


@case(
    "finish-error-quarantine",
    "a decode engine that only yields finish_reason error is soon left alone",
    [8],
    "breaker",
    dirty=True,
    timeout=60,
)
def _(g):
    g.d[0].rule("finish_error")
    hit = []
    for _ in range(40):
        r = g.ask(stream=False, timeout=8)
        hit.append(any(c["mode"] for c in g.calls(r.marker, g.d[:1])))
    if not any(hit):
        g.d[0].ok()
        g.d[1].rule("finish_error")
        for _ in range(40):
            r = g.ask(stream=False, timeout=8)
            hit.append(any(c["mode"] for c in g.calls(r.marker, g.d[1:])))
    check(any(hit), "the faulty engine was never asked")
    check(sum(hit[-15:]) <= 3, f"{sum(hit[-15:])} of the last 15 requests still went to the failing engine")


@case(
    "prefill-fails-fast",
    "every prefill fails: the client has its error within 3 s and no decode waits for KV",
    [15, 12],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.p:
        e.rule("http", status=500)
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=10)
        check(r.status >= 500, f"{r.brief()}; {g.trail(r.marker)}")
        in_time(r.t_end - r.t0 < 3 * g.slack, f"took {r.t_end - r.t0:.1f} s")
        check(
            not g.split or not g.calls(r.marker, g.d),
            f"decode was called although no prefill worked: {g.trail(r.marker)}",
        )
    g.quiet()


@case(
    "prefill-dies-at-work",
    "prefill dies while working: the client has an answer within 3 s",
    [15],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.p:
        e.set(prefill_ms=9000)
    m, b = g.chat()
    l = g.live(b)
    g.wait(lambda: at_work(g, g.p, m), 4, "prefill was never called")
    e = next(e for e in g.p if e.log(m))
    o = next(x for x in g.p if x is not e)
    o.set(prefill_ms=0)
    e.down()
    t = now()
    r = l.read(8)
    r.marker = m
    check(r.status, f"no answer 8 s after prefill died; {g.trail(m)}")
    in_time(r.t_end - t < 3 * g.slack, f"took {r.t_end - t:.1f} s")
    if r.status == 200:
        g.good(r)


@case(
    "decode-fails-fast",
    "every decode answers 503: an error within 5 s, no prefill left running",
    [16],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.d:
        e.rule("http", status=503)
    for stream in (True, False):
        r = g.ask(stream=stream, timeout=10)
        check(r.status >= 500, r.brief())
        in_time(r.t_end - r.t0 < 5 * g.slack, f"took {r.t_end - r.t0:.1f} s")
    g.quiet()


@case(
    "retries-bounded",
    "with every prefill failing, a request costs at most 4 prefill calls (each holds KV on a real engine)",
    [12, 17],
    "failover",
    dirty=True,
)
def _(g):
    for e in g.p:
        e.rule("http", status=503)
    for i in range(6):
        r = g.ask(timeout=10)
        n = len(g.calls(r.marker, g.p))
        check(n <= 4, f"request {i + 1} made {n} prefill calls")


@case(
    "4xx-not-a-fault",
    "30 requests refused with 400 trip no breaker and are not retried",
    [20, "brief"],
    "breaker",
    dirty=True,
)
def _(g):
    for e in g.engines:
        e.set(max_chars=3000)
    for i in range(30):
        m, b = g.chat(stream=i % 2 == 0)
        b["messages"][0]["content"] += " x" * 2000
        r = g.send(b)
        check(r.status == 400, f"refusal {i + 1}: {r.brief()}; {g.trail(m)}")
        check(len(g.calls(m)) == (1 if g.split else 2), f"a 4xx was retried: {g.trail(m)}")
    for _ in range(8):
        g.good(g.ask())
    for e in g.d:
        e.rule("http", status=422)
    for i in range(20):
        check(g.ask().status == 422, "a 422 of decode did not reach the client")
    for e in g.d:
        e.ok()
    for _ in range(8):
        g.good(g.ask())


@case(
    "poison-request",
    "a request that every engine answers with 500 (a bug or a validation error) does not take service from others",
    [20],
    "breaker",
    dirty=True,
    timeout=60,
)
def _(g):
    bad = new_marker()
    for e in g.engines:
        e.rule("http", status=500, marker=bad)
    for i in range(6):
        r = g.ask(marker=bad, timeout=10)
        check(r.status >= 500, f"the poison request got {r.brief()}")
        for _ in range(2):
            g.good(g.ask(timeout=10))


@case("long-generation-no-fault", "several long generations trip no breaker", [20], "breaker", timeout=40)
def _(g):
    for e in g.d:
        e.set(itl_ms=700)
    for r in g.many(6, n=8, timeout=20):
        g.good(r, 8)
    for e in g.d:
        e.set(itl_ms=0)
    for _ in range(6):
        g.good(g.ask())
