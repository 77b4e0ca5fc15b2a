"""Request ids, upstream and downstream."""

from __future__ import annotations

from harness import case, check, rids


@case("one-request-id-header", "exactly one X-Request-Id header goes upstream", [19], "ids")
def _(g):
    r = g.ask(headers={"X-Request-Id": "client-77"})
    g.good(r)
    for c in g.calls(r.marker):
        check(len(rids(c)) == 1, f"{c['name']} got {len(rids(c))} X-Request-Id headers: {rids(c)}")


@case(
    "request-id-unique",
    "eight concurrent requests with the same x-request-id: engine-side ids are unique, all succeed",
    [18],
    "ids",
)
def _(g):
    for e in g.p:
        e.set(prefill_ms=150)
    for e in g.d:
        e.set(itl_ms=40)
    rs = g.many(8, headers={"X-Request-Id": "same-id"})
    for e in g.engines:
        log = e.log()
        ids = [tuple(rids(c)) for c in log]
        check(
            not any(c["dup"] for c in log),
            f"{e} saw a request id that it was still working on: {list(ids)}",
        )
        check(len(set(ids)) == len(ids) or () in ids, f"{e} saw a request id twice: {sorted(ids)}")
    for r in rs:
        g.good(r)


@case(
    "request-id-echo",
    "the client's x-request-id comes back in the response, of streams, JSON and errors",
    ["brief", 18],
    "ids",
)
def _(g):
    for kw in ({"stream": True}, {"stream": False}, {"stream": False, "temperature": "hot", "model_": 1}):
        _m, b = g.chat(**kw)
        if "model_" in kw:
            b.pop("model_")
            b["messages"] = []
        r = g.send(b, headers={"X-Request-Id": "my-id-5"})
        check(
            r.header("x-request-id") == "my-id-5",
            f"status {r.status}: x-request-id in the response is {r.header('x-request-id')!r}, the client sent 'my-id-5'",
        )
