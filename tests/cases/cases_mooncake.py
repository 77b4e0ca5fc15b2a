"""The Mooncake connector."""

from __future__ import annotations

import time

from harness import case, check, in_time, kv_of, now, short


@case(
    "mooncake-null-params",
    "mooncake: prefill's kv_transfer_params are null by design; both legs share one transfer id, new for each request",
    [6, 17],
    "mooncake",
    needs="mooncake",
)
def _(g):
    seen = []
    for stream in (True, False, True):
        r = g.ask(stream=stream)
        g.good(r)
        p, d = g.pd(r.marker)
        check(len(p) == 1 and len(d) == 1, g.trail(r.marker))
        k, h = kv_of(p[0]) or {}, kv_of(d[0]) or {}
        check(
            k.get("do_remote_decode") is True and h.get("do_remote_prefill") is True,
            f"prefill {short(k)} decode {short(h)}",
        )
        check(
            k.get("transfer_id") and k.get("transfer_id") == h.get("transfer_id"),
            f"transfer ids {k.get('transfer_id')} and {h.get('transfer_id')}",
        )
        seen.append(k["transfer_id"])
        check(
            h.get("remote_engine_id") == p[0]["engine_id"],
            f"decode's remote_engine_id {h.get('remote_engine_id')}, prefill is {p[0]['engine_id']}",
        )
        check(h.get("remote_bootstrap_addr"), "no remote_bootstrap_addr")
    check(len(set(seen)) == 3, f"transfer ids were used again: {seen}")


@case(
    "mooncake-restarted-prefill",
    "mooncake: after a prefill restart the engine id is asked for again",
    [7],
    "mooncake",
    needs="mooncake",
    dirty=True,
    timeout=60,
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
        if r.status == 200 and p and d and kv_of(d[-1]).get("remote_engine_id") == p[-1]["engine_id"]:
            good += 1
        else:
            good = 0
            in_time(
                now() - t < 20,
                f"20 s after the restart decode is still told {short(kv_of(d[-1]) if d else None)}; the engine is {p[-1]['engine_id'] if p else '?'}",
            )
            time.sleep(0.3)


@case(
    "mooncake-prefill-fails",
    "mooncake: prefill fails while decode waits for KV: decode is closed and the client answered within 3 s",
    [15],
    "mooncake",
    needs="mooncake",
    dirty=True,
)
def _(g):
    for e in g.p:
        e.rule("http", status=500)
    for e in g.d:
        e.rule("slow", ms=9000)
    r = g.ask(timeout=12)
    check(r.status >= 500, r.brief())
    in_time(r.t_end - r.t0 < 3 * g.slack, f"took {r.t_end - r.t0:.1f} s")
    g.quiet(1)
