"""What crosses the gateway and must not."""

from __future__ import annotations

import json
import time

from harness import Skip, case, check, hdr, kv_of, short


@case(
    "client-kv-params-stripped",
    "kv_transfer_params from a client never reach an engine",
    [37, "brief"],
    "security",
)
def _(g):
    evil = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_host": "169.254.169.254",
        "remote_port": 80,
        "remote_engine_id": "evil",
        "remote_block_ids": [[1]],
        "remote_request_id": "evil",
    }
    for path, mk in (("/v1/chat/completions", g.chat), ("/v1/completions", g.comp)):
        for stream in (True, False):
            m, b = mk(stream=stream, kv_transfer_params=evil)
            r = g.send(b, path)
            r.marker = m
            for c in g.calls(m):
                check(
                    "evil" not in c["raw"] and "169.254" not in c["raw"],
                    f"{c['name']} got the client's kv_transfer_params: {short(kv_of(c))}",
                )
            if r.status != 400:
                g.good(r)


@case(
    "reply-kv-params-hidden",
    "kv_transfer_params that decode returns never reach the client, stream or not",
    [37, "brief"],
    "security",
)
def _(g):
    for e in g.d:
        e.rule("kvreply")
    for stream in (True, False):
        r = g.ask(stream=stream)
        g.good(r)
        check(
            b"remote_engine_id" not in r.body and b"remote_host" not in r.body,
            f"engine addresses leak to the client: {short(r.body[-500:], 500)}",
        )


@case(
    "reply-key-absent",
    "the field kv_transfer_params is not in the client's answer at all, also not null",
    [37, "brief"],
    "security",
)
def _(g):
    for stream in (True, False):
        r = g.ask(stream=stream)
        g.good(r)
        check(
            b"kv_transfer_params" not in r.body,
            f"the answer has a kv_transfer_params field: {short(r.body[-300:])}",
        )


@case("client-key-kept-back", "the client's Authorization is not passed to engines", [39], "security")
def _(g):
    r = g.ask(headers={"Authorization": "Bearer sk-client-secret"})
    if r.status == 401:
        raise Skip("this gateway wants its own keys")
    g.good(r)
    for c in g.calls(r.marker):
        check("sk-client-secret" not in json.dumps(c["headers"]), f"{c['name']} got the client's key")


@case(
    "engine-key-everywhere",
    "the engines' key goes with every upstream call, models and health too",
    [39],
    "security",
    needs="engine_key",
)
def _(g):
    key = g.opts["engine_key"]
    for e in g.engines:
        e.set(key=key)
    for stream in (True, False):
        r = g.ask(stream=stream)
        g.good(r)
        for c in g.calls(r.marker):
            check(
                hdr(c, "authorization") == "Bearer " + key,
                f"{c['name']} got Authorization {hdr(c, 'authorization')!r}",
            )
    check(g.get("/v1/models").status == 200, "/v1/models fails with keyed engines")
    time.sleep(2.5)
    for e in g.engines:
        for m, p, a in e.stats()["gets"]:
            if not p.startswith("/fake"):
                check(a == "Bearer " + key, f"{e}: {m} {p} came with Authorization {a!r}")
