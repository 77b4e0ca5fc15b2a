"""Replicas, registration, audio, jobs."""

from __future__ import annotations

import time

from harness import G, Skip, case, check, in_time, now


@case(
    "registration-mismatch",
    "an engine with another TP size or block size is refused at registration",
    [41],
    "api",
    needs="register",
)
def _(g):
    method, path, tmpl = g.opts["register"].split(
        " ", 2
    )  # e.g. POST /admin/engines {"url":"%URL%","role":"decode","tp_size":%TP%}
    put = lambda tp: g.send(
        tmpl.replace("%URL%", f"http://127.0.0.1:{g.d[0].port}").replace("%TP%", tp).encode(), path, method=method
    )
    r = put("1")
    check(r.status < 300, f"a matching engine was refused: {r.brief()}")
    r = put("3")
    check(400 <= r.status < 500, f"a mismatched engine was accepted: {r.brief()}")


@case(
    "replicas-share-load",
    "two gateway replicas know of each other's streams",
    [43],
    "load",
    needs="replica",
    timeout=60,
)
def _(g):
    for e in g.d:
        e.set(itl_ms=500)
    g.d[1].down()
    ls = [g.live(g.chat(n=200)[1]) for _ in range(6)]
    for l in ls:
        l.read(10, until=lambda r: len(r.events()) >= 2)
    n = len(g.d[0].log())
    g.d[1].up()
    b = G(g.base2, g.engines, g.opts)
    t = now()
    while not g.d[1].log():
        b.ask(n=1)
        in_time(now() - t < 25, "the second replica never used the engine that came back")
        time.sleep(0.3)
    ms = []
    for _ in range(4):
        m, body = b.chat(n=40)
        ms.append(m)
        x = b.live(body)
        x.read(10, until=lambda r: len(r.events()) >= 2)
        ls.append(x)
    on2 = sum(bool(g.d[1].log(m)) for m in ms)
    [l.close() for l in ls]
    check(on2 >= 3, f"d1 had {n} streams of the other replica, d2 none; this replica still put {4 - on2} of 4 on d1")


@case(
    "audio-in-stream",
    "modalities text+audio: audio chunks pass whole and in order, or the request is refused; audio is not dropped in silence",
    [45],
    "omni",
)
def _(g):
    for e in g.d:
        e.rule("audio")
    r = g.ask(n=3, modalities=["text", "audio"], audio={"voice": "x", "format": "pcm16"})
    if 400 <= r.status < 500 or r.status == 501:
        return
    g.good(r, 3)
    _, d = g.pd(r.marker)
    check(d[-1]["body"].get("modalities") == ["text", "audio"], "decode did not get the modalities")
    a = [c["delta"]["audio"]["data"] for _, o in r.objs() for c in o["choices"] if (c.get("delta") or {}).get("audio")]
    check(a == ["UklGRgAA", "AQIDBAUG", "BwgJCgsM"], f"audio chunks: {a}")


@case(
    "video-job-pinned",
    "a job (/v1/videos) is found again on the engine that made it (skipped where not offered)",
    [46],
    "omni",
)
def _(g):
    ids = []
    for _ in range(4):
        r = g.send({"model": g.model, "prompt": "a cat"}, "/v1/videos")
        if r.status in (404, 405, 501):
            raise Skip("no /v1/videos here")
        check(r.status == 200, r.brief())
        ids.append(r.json()["id"])
    for v in ids * 2:
        r = g.get("/v1/videos/" + v)
        if r.status in (405, 501):
            raise Skip("jobs cannot be asked for here")
        check(r.status == 200 and r.json().get("id") == v, f"job {v}: {r.brief()}")
