"""Clients that leave."""

from __future__ import annotations

import re
import threading
import time

from harness import Fail, Late, at_work, cancel, case, check, now


@case(
    "cancel-in-prefill",
    "client gone during prefill (stream): prefill closed within 0.5 s, decode never called",
    [9, "brief"],
    "cancel",
)
def _(g):
    for e in g.p:
        e.set(prefill_ms=6000)
    m = cancel(g, True, "", "prefill", lambda m: at_work(g, g.p, m))
    check(not g.split or not g.calls(m, g.d), "decode was called for a client that had left")


@case(
    "cancel-in-prefill-unary",
    "client gone during prefill (not stream): prefill closed within 0.5 s",
    [9, 13, "brief"],
    "cancel",
)
def _(g):
    for e in g.p:
        e.set(prefill_ms=6000)
    m = cancel(g, False, "", "prefill", lambda m: at_work(g, g.p, m))
    check(not g.split or not g.calls(m, g.d), "decode was called for a client that had left")


@case(
    "cancel-before-headers",
    "client gone after prefill, while decode holds its headers (stream): decode closed within 0.5 s",
    [10, "brief"],
    "cancel",
)
def _(g):
    for e in g.d:
        e.rule("slow", ms=6000)
    cancel(g, True, "", "decode before headers", lambda m: at_work(g, g.d, m))


@case(
    "cancel-unary-decode",
    "client of a plain JSON request gone during decode: decode closed within 0.5 s",
    [13, "brief"],
    "cancel",
)
def _(g):
    for e in g.d:
        e.rule("slow", ms=6000)
    cancel(g, False, "", "decode, not stream", lambda m: at_work(g, g.d, m))


@case("cancel-mid-stream", "client gone while tokens flow: decode closed within 0.5 s", [11, "brief"], "cancel")
def _(g):
    for e in g.d:
        e.set(itl_ms=30)
    cancel(g, True, "events", "decode streaming", lambda m: at_work(g, g.d, m))


@case(
    "cancel-silent-stream",
    "client gone while decode is silent: noticed without waiting for the next token",
    [14, "brief"],
    "cancel",
)
def _(g):
    for e in g.d:
        e.rule("stall_after", n=3)
    cancel(g, True, "events", "decode silent", lambda m: at_work(g, g.d, m))


@case("cancel-spares-others", "cancelling one stream leaves others on the same engines untouched", [11], "cancel")
def _(g):
    for e in g.d:
        e.set(itl_ms=50)
    ls = [(m, g.live(b)) for m, b in (g.chat(n=30) for _ in range(6))]
    for _, l in ls:
        l.read(8, until=lambda r: len(r.events()) >= 3)
    for _, l in ls[::2]:
        l.close()
    for m, l in ls[1::2]:
        r = l.read(10)
        r.marker = m
        g.good(r, 30)
    g.quiet()


@case(
    "cancel-sweep",
    "40 clients leaving at all moments: nothing stays in flight, the gateway's gauges return to 0, service goes on",
    [13, 10],
    "cancel",
    timeout=60,
)
def _(g):
    for e in g.p:
        e.set(prefill_ms=80)
    for e in g.d:
        e.set(itl_ms=10, ttft_ms=40)

    def one(i):
        _m, b = g.chat(n=300, stream=i % 2 == 0)
        l = g.live(b)
        time.sleep(i * 0.008)
        l.close()

    ts = [threading.Thread(target=one, args=(i,)) for i in range(40)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    g.quiet(1.0)
    gauge = {}

    def idle():
        gauge.clear()
        gauge.update(
            {
                k: v
                for k, v in g.metrics().items()
                if re.search(r"in_?flight|active_req|running_req|requests_(active|running)|worker_load", k, re.I)
                and not re.search("_total|_bucket|_count|_sum", k)
                and v > 1
            }
        )  # 1 may be the scrape itself
        return not gauge

    try:
        g.wait(idle, 3, "")
    except Late:
        raise Late(f"gauges of the gateway still say: {gauge}")
    for _ in range(6):
        g.good(g.ask())


@case(
    "stranded-handoff",
    "client gone between prefill's answer and decode: the KV is released by a short decode call, or accounted for in a metric",
    [10],
    "cancel",
    dirty=True,
    timeout=40,
    split=True,
)
def _(g):
    before = g.metrics()
    for e in g.d:
        e.blackhole()
    m, b = g.chat()
    l = g.live(b)
    try:
        g.wait(lambda: any(c["outcome"] == "done" for c in g.calls(m, g.p)), 4, "")
    except Fail:
        return  # it does not prefill while no decode can be reached: nothing is stranded
    time.sleep(0.3)
    l.close()
    time.sleep(0.3)
    for e in g.d:
        e.up()
    end = now() + 6
    while now() < end:
        if g.calls(m, g.d) or g.grew(
            before, "strand|orphan|unclaimed|unused|abandon|leak|releas|expir|cancel|disconnect|client_gone"
        ):
            return
        time.sleep(0.2)
    raise Late(
        "prefill holds KV that nobody will fetch (480 s until it expires); no decode call released it and no metric counts it"
    )
