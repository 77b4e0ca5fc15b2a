"""Streams: framing, ends, latency."""

from __future__ import annotations

import statistics
import threading
import time

from harness import Live, case, check, delays, expected, in_time, new_marker, short


@case(
    "stream-done-once",
    "a stream is text/event-stream and ends with exactly one [DONE], the last event",
    ["brief"],
    "stream",
)
def _(g):
    for path in ("/v1/chat/completions", "/v1/completions"):
        m, b = (g.chat if "chat" in path else g.comp)(stream=True)
        r = g.send(b, path)
        r.marker = m
        g.good(r)
        check(r.ctype == "text/event-stream", f"content-type {r.ctype}")
        check(
            r.events()[-1][1].strip() == b"[DONE]" and not r.rest.strip(),
            f"[DONE] is not the end: {short(r.body[-200:])}",
        )


@case("done-repaired", "the engine ends its stream cleanly but without [DONE]: the client gets one", [25], "stream")
def _(g):
    for e in g.d:
        e.rule("nodone")
    r = g.ask()
    check(r.complete and r.text() == expected(r.marker, 4), r.brief())
    check(r.dones == 1, f"[DONE] came {r.dones} times")


@case(
    "usage-only-when-asked",
    "usage in a stream only with include_usage, and then once, in a last chunk with choices []",
    ["brief"],
    "usage",
)
def _(g):
    r = g.ask()
    g.good(r)
    check(not any(o.get("usage") for _, o in r.objs()), "usage came although not asked for")
    check(
        all(o.get("choices") for _, o in r.objs()),
        "a chunk with empty choices came although usage was not asked for",
    )
    r = g.ask(stream_options={"include_usage": True})
    g.good(r)
    u = [o for _, o in r.objs() if o.get("usage")]
    check(len(u) == 1, f"{len(u)} chunks with usage")
    check(u[0]["choices"] == [], f"the usage chunk has choices {short(u[0].get('choices'))}")
    check(r.objs()[-1][1] is not None and r.objs()[-1][1].get("usage"), "usage is not in the last chunk")
    check(
        u[0]["usage"]["completion_tokens"] == 4 and u[0]["usage"]["total_tokens"] == u[0]["usage"]["prompt_tokens"] + 4,
        f"usage {u[0]['usage']}",
    )


@case("unary-is-json", "stream false or absent: one JSON body, no SSE", [28, "brief"], "stream")
def _(g):
    for s in (False, ...):
        r = g.ask(stream=s)
        check(r.ctype == "application/json", f"stream={s}: content-type {r.ctype}: {r.brief()}")
        j = r.json()
        check(j.get("object") == "chat.completion" and len(j["choices"]) == 1, r.brief())
        g.good(r)


@case(
    "nulls-accepted",
    "null for optional fields (stream, stream_options, stop, n, max_tokens, tools) counts as absent, as OpenAI's API reference has it",
    ["brief"],
    "api",
)
def _(g):
    m, b = g.chat(n=...)
    b.update(
        {
            k: None
            for k in (
                "stream",
                "stream_options",
                "stop",
                "n",
                "max_tokens",
                "tools",
                "response_format",
                "temperature",
                "user",
            )
        }
    )
    r = g.send(b)
    r.marker = m
    check(r.ctype == "application/json", r.brief())
    g.good(r, 6)


@case("split-event", "engine events cut inside a UTF-8 character or at any point arrive whole", [27], "stream")
def _(g):
    for mode in ("split", "utf8split"):
        for e in g.d:
            e.ok()
            e.rule(mode)
        r = g.ask(n=7)
        g.good(r, 7)
        check(len(r.objs()) == 8, f"{len(r.objs())} events, the engine sent 8")


@case("coalesced-events", "many events in one TCP segment stay separate events", [27], "stream")
def _(g):
    for e in g.d:
        e.rule("coalesce")
    r = g.ask(n=40, stream_options={"include_usage": True})
    g.good(r, 40)
    check(len(r.objs()) == 42, f"{len(r.objs())} events, the engine sent 42")


@case(
    "event-latency",
    "each event is passed on when it comes, not buffered: before the engine sends the next",
    [29, "brief"],
    "stream",
)
def _(g):
    for e in g.d:
        e.set(itl_ms=150)
    d = delays(g, 9)
    late = sum(x > 0.14 for x in d)
    in_time(
        statistics.median(d) < 0.04 * g.slack,
        f"median delay of an event {statistics.median(d) * 1e3:.0f} ms (all, ms: {[round(x * 1e3) for x in d]})",
    )
    in_time(late <= 2, f"{late} of {len(d)} events came after the next was sent (ms: {[round(x * 1e3) for x in d]})")


@case(
    "no-nagle-stall",
    "events a few ms apart on a kept connection: none is held for the client's delayed ACK (40 ms)",
    [29],
    "stream",
)
def _(g):
    for e in g.d:
        e.set(itl_ms=4)
    sock, worst = None, []
    for _ in range(24):  # request after request on one connection is where Linux delays its ACKs
        m, b = g.chat(n=4)
        l = Live(g.base, "POST", "/v1/chat/completions", b, sock=sock)
        r = l.read()
        r.marker = m
        g.good(r)
        sock = l.sock
        worst.append(max(a - b for (a, _), b in zip(r.objs(), g.calls(m, g.d)[-1]["events"], strict=False)))
    slow = sum(x > 0.03 for x in worst)
    in_time(
        slow <= 7,
        f"in {slow} of 24 short streams an event was held over 30 ms (worst of each, ms: {[round(x * 1e3) for x in worst]}): TCP_NODELAY missing?",
    )


@case(
    "first-token-time",
    "response headers or the first event are not held back until the answer is complete",
    [29, "brief"],
    "stream",
)
def _(g):
    for e in g.d:
        e.set(itl_ms=400)
    r = g.ask(n=5, timeout=10)
    g.good(r, 5)
    c = g.calls(r.marker, g.d)[-1]
    in_time(
        r.events()[0][0] - c["events"][0] < 0.25 * g.slack,
        f"the first event came {r.events()[0][0] - c['events'][0]:.2f} s after the engine sent it",
    )


@case("disconnect-no-stall", "a client leaving a long stream does not hold up other streams", [26], "stream")
def _(g):
    big, slow = new_marker(), new_marker()
    for e in g.d:
        e.set(itl_ms=0)
        e.rule("stall_after", marker=big, n=3000)
    l = g.live(g.chat(big, n=5000)[1])
    l.read(20, until=lambda r: f"{big}.2990".encode() in r.chunks[-1][1])
    for e in g.d:
        e.set(itl_ms=60)
    box = {}
    t = threading.Thread(target=lambda: box.update(r=g.ask(marker=slow, n=20, timeout=15)))
    t.start()
    time.sleep(0.5)
    l.close()
    t.join()
    g.good(box["r"], 20)
    c = g.calls(slow, g.d)[-1]
    d = [a - b for (a, _), b in zip(box["r"].objs(), c["events"], strict=False)]
    in_time(max(d) < 0.3 * g.slack, f"an event of the other stream came {max(d) * 1e3:.0f} ms late")


@case(
    "long-slow-stream",
    "a stream of 11 s with 1.5 s gaps is not cut by a total or idle timeout",
    [40],
    "stream",
    timeout=40,
)
def _(g):
    for e in g.d:
        e.set(itl_ms=1500)
    g.good(g.ask(n=8, timeout=25), 8)


@case(
    "slow-headers",
    "an engine that answers after 3 s is waited for (prefill and decode, stream and not)",
    [40],
    "stream",
    timeout=40,
)
def _(g):
    for e in g.engines:
        e.rule("slow", ms=3000)
    rs = []
    ts = [threading.Thread(target=lambda s=s: rs.append(g.ask(stream=s, timeout=15))) for s in (True, False)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    check(len(rs) == 2, "a request broke")
    for r in rs:
        g.good(r)
        check(len(g.calls(r.marker)) == 2, f"called again while the engine was at work: {g.trail(r.marker)}")


@case(
    "no-crosstalk",
    "64 concurrent streams each get their own tokens and nothing else",
    ["brief"],
    "load",
    timeout=60,
)
def _(g):
    for e in g.d:
        e.set(itl_ms=10)
    for r in g.many(64, n=12, timeout=40):
        g.good(r, 12)
    for e in g.engines:
        check(not any(c["dup"] for c in e.log()), f"{e} saw a request id twice at once")
    g.quiet()


@case(
    "sequential-500",
    "500 requests one after another: all right, nothing left in flight",
    ["brief", 13],
    "load",
    timeout=120,
)
def _(g):
    for i in range(500):
        r = g.ask(stream=i % 2 == 0, n=2)
        check(r.status == 200 and r.complete and r.text() == expected(r.marker, 2), f"request {i}: {r.brief()}")
    g.quiet()
    n = {e.name: len(e.log()) for e in g.engines}
    check(n["p1"] + n["p2"] == 500 and n["d1"] + n["d2"] == 500, f"engine calls {n} for 500 requests")
