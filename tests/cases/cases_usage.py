"""Token counts."""

from __future__ import annotations

from harness import case, check


@case(
    "cached-tokens",
    "cached_tokens is prefill's figure, not decode's (which counts the transferred KV)",
    [30],
    "usage",
    split=True,
)
def _(g):
    for e in g.p:
        e.set(cached=3)
    for e in g.d:
        e.set(cached=7)
    r = g.ask(stream=False)
    g.good(r)
    u = r.json()["usage"]
    c = (u.get("prompt_tokens_details") or {}).get("cached_tokens")
    check(c == 3, f"cached_tokens is {c}; prefill said 3, decode 7")
    r = g.ask(stream_options={"include_usage": True})
    g.good(r)
    u = next(o["usage"] for _, o in r.objs() if o.get("usage"))
    c = (u.get("prompt_tokens_details") or {}).get("cached_tokens")
    check(c == 3, f"streamed cached_tokens is {c}; prefill said 3, decode 7")
