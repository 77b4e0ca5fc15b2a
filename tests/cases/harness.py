"""All that case files use, and the steps that several of them share."""

from __future__ import annotations

import re
import time

from client import CASES, Fail, Late, Live, Resp, Skip, case, check, expected, in_time, new_marker, now, short
from under_test import G

from engines import Engine, hdr, kv_of, rids

__all__ = [
    "CASES",
    "Engine",
    "Fail",
    "G",
    "Late",
    "Live",
    "Resp",
    "Skip",
    "at_work",
    "both_legs",
    "cancel",
    "case",
    "check",
    "delays",
    "expected",
    "hdr",
    "hits_mid",
    "in_time",
    "kv_of",
    "limit",
    "new_marker",
    "now",
    "refuse_in_turn",
    "rids",
    "ride_over",
    "short",
    "visible",
]

CANCEL = 0.5  # seconds between a client's leaving and the engine's seeing it


def both_legs(g, **kw):
    """Send one chat request; its one prefill body and one decode body."""
    m, b = g.chat(**kw)
    r = g.send(b)
    r.marker = m
    p, d = g.pd(m)
    check(p, f"no prefill call was made: {r.brief()}; {g.trail(m)}")
    check(d, f"no decode call was made: {r.brief()}; {g.trail(m)}")
    return r, b, p[-1]["body"], d[-1]["body"]


def limit(body):
    """The token limit of a body: max_completion_tokens wins over max_tokens, as in vLLM."""
    v = body.get("max_completion_tokens")
    return body.get("max_tokens") if v is None else v


def visible(g, before, r):
    words = "fallback|bypass|recompute|degrad|no_kv|nokv|missing|without_kv|local_prefill|unsplit"
    return any(
        re.search(words, f"{k}={v}", re.I) for k, v in r.headers if k.lower().startswith(("x-", "warning"))
    ) or g.grew(before, words)


def delays(g, n):
    r = g.ask(n=n, timeout=15)
    g.good(r, n)
    c = g.calls(r.marker, g.d)[-1]
    got = [t for t, _ in r.objs()]
    check(len(got) == len(c["events"]), f"{len(got)} events for the engine's {len(c['events'])}")
    return [a - b for a, b in zip(got, c["events"], strict=False)]


def cancel(g, stream, at, phase, started):
    """Send, wait until started(), leave; every engine call under way then must be aborted within CANCEL."""
    m, b = g.chat(n=400, stream=stream)
    l = g.live(b)
    if at == "events":
        l.read(8, until=lambda r: len(r.events()) >= 3)
    g.wait(lambda: started(m), 5, f"the request never got to the phase '{phase}'; {g.trail(m)}")
    time.sleep(0.15)
    t = l.close()
    g.wait(
        lambda: not any(c["outcome"] == "live" for c in g.calls(m)),
        CANCEL * 6,
        f"{phase}: {CANCEL * 6} s after the client left an engine is still at work; {g.trail(m)}",
    )
    time.sleep(0.2)
    for c in g.calls(m):
        if c["t_end"] > t:
            check(
                c["outcome"] == "aborted",
                f"{phase}: {c['name']} ran on to its end ({c['outcome']}) after the client had left",
            )
            in_time(
                c["t_end"] - t <= CANCEL * g.slack,
                f"{phase}: {c['name']} was left {c['t_end'] - t:.2f} s after the client",
            )
    return m


def at_work(g, pool, marker):
    return any(c["outcome"] == "live" for c in g.calls(marker, pool))


def ride_over(g, engine, mode, **rule):
    """Every request that meets the faulty engine succeeds on its twin."""
    for stream in (True, False):
        for r in g.hits(engine, mode, stream=stream, **rule):
            g.good(r)


def hits_mid(g, mode, n=3, tokens=8, **kw):
    """Replies of requests whose decode broke off after n tokens, whichever engine it was."""
    if getattr(g, "hit", False):
        g.settle(g.d)
    g.hit = True
    for e in g.d:
        e.rule(mode, n=n)
    rs = [g.ask(n=tokens, timeout=8, **kw) for _ in range(2)]
    rs = [r for r in rs if any(c["mode"] == mode for c in g.calls(r.marker, g.d))]
    check(rs, "no request reached a decode engine")
    return rs


def refuse_in_turn(g, pool):
    """One engine of the pool refuses connections, then, when it is trusted again, the other: every request succeeds."""
    for e in pool:
        e.down()
        for stream in (True, False, True, False):
            g.good(g.ask(stream=stream))
        if not g.settle(pool):
            return
