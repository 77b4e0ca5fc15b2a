"""Connections to engines."""

from __future__ import annotations

from harness import case, check


@case(
    "stale-connection",
    "a kept connection dies under the request without a byte: one retry on a fresh one, the client sees success",
    [23],
    "pool",
    dirty=True,
)
def _(g):
    for _ in range(4):
        g.good(g.ask())
    for pool in (g.p, g.d):
        for e in pool:
            e.rule("stale")
        for i in range(6):
            g.good(g.ask(stream=i % 2 == 0))
        for e in pool:
            e.ok()


@case("connections-pooled", "30 requests reuse connections to the engines", [24], "pool")
def _(g):
    for i in range(30):
        g.good(g.ask(stream=i % 2 == 0))
    for e in g.engines:
        log = e.log()
        n = len({c["conn"] for c in log})
        check(n <= max(4, len(log) // 3), f"{e}: {n} connections for {len(log)} requests")
