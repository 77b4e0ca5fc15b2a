"""Engines that fail."""

from __future__ import annotations

import time

from harness import Skip, case, check, in_time, kv_of, now, refuse_in_turn, ride_over


@case(
    "prefill-5xx-failover",
    "prefill answers 500 or 503, a second is healthy: the client sees success",
    ["brief", 15],
    "failover",
    dirty=True,
    timeout=60,
)
def _(g):
    ride_over(g, g.p[0], "http", status=500)
    ride_over(g, g.p[0], "http", status=503)


@case(
    "prefill-reset-failover",
    "prefill resets the connection before a byte: success on the other",
    ["brief", 17],
    "failover",
    dirty=True,
)
def _(g):
    ride_over(g, g.p[0], "reset")


@case(
    "prefill-refused-failover",
    "a prefill engine refuses connections: every request succeeds on the other",
    ["brief"],
    "failover",
    dirty=True,
    timeout=60,
)
def _(g):
    refuse_in_turn(g, g.p)


@case(
    "decode-refused-failover",
    "a decode engine refuses connections: every request succeeds on the other",
    ["brief"],
    "failover",
    dirty=True,
    timeout=60,
)
def _(g):
    refuse_in_turn(g, g.d)


@case(
    "decode-reset-failover",
    "decode dies before the first byte: success on another engine",
    ["brief", 17],
    "failover",
    dirty=True,
)
def _(g):
    ride_over(g, g.d[0], "reset")


@case(
    "handoff-single-use",
    "decode had the request and died: the retry gets a fresh handoff (prefill frees the blocks once fetched)",
    [17],
    "failover",
    dirty=True,
    split=True,
)
def _(g):
    for r in g.hits(g.d[0], "reset"):
        _p, d = g.pd(r.marker)
        if len(d) < 2:
            raise Skip("a dead decode is not retried here")
        g.good(r)
        by = {}
        for c in d:
            if kv_of(c):
                by.setdefault(kv_of(c).get("remote_request_id"), []).append(c)
        for (
            k,
            cs,
        ) in (
            by.items()
        ):  # one repeat on the same engine is legal when a kept connection died (it may never have arrived)
            check(
                len({c["name"] for c in cs}) == 1 and (len(cs) == 1 or len(cs) == 2 and cs[0]["conn_req"] > 1),
                f"the handoff {k} was given to {[c['name'] for c in cs]}; {g.trail(r.marker)}",
            )


@case(
    "blackholed-decode",
    "connects to a decode engine hang: the request succeeds on the other within 25 s",
    [40],
    "failover",
    dirty=True,
    timeout=90,
)
def _(g):
    g.d[0].blackhole()
    for _ in range(2):
        for r in g.many(4, timeout=25):
            g.good(r)
    g.d[0].up()


@case(
    "restarted-prefill",
    "prefill engines restart with a new engine id: within 20 s handoffs name the new one",
    [7],
    "failover",
    dirty=True,
    timeout=60,
    split=True,
)
def _(g):
    for _ in range(4):
        g.good(g.ask())
    for e in g.p:
        e.down()
        e.up(new_id=True)
    t = now()
    good = 0
    while good < 6:
        r = g.ask(timeout=6)
        p, d = g.pd(r.marker)
        if g.is_good(r):
            check(
                (kv_of(d[-1]) or {}).get("remote_engine_id") == p[-1]["engine_id"],
                f"decode was sent to engine {(kv_of(d[-1]) or {}).get('remote_engine_id')}, prefill is now {p[-1]['engine_id']}",
            )
            good += 1
        else:
            in_time(now() - t < 20, f"no service 20 s after the restart: {r.brief()}")
            time.sleep(0.2)
