"""One request to the data port: noted, made to go wrong where a rule says so, refused, or answered."""

import asyncio
import json
import uuid

from fake_answer import Answer
from fake_pages import page
from fake_refusals import refuse
from fake_stream import stream
from fake_whole import whole
from fake_words import MARK, err, now


async def serve(w, method, path, hdrs, h, body):
    e = w.e
    p = path.split("?")[0]
    authed = not e.set["key"] or h.get("authorization") == "Bearer " + e.set["key"]
    if method != "POST":
        return await page(w, method, p, h, authed)
    raw = body.decode("utf-8", "replace")
    rule = e.rule_for(raw)
    mode = rule.get("mode", "")
    b, r = _record(w, method, path, hdrs, h, raw, mode)
    if mode == "stale" and w.nreq > 1 or mode == "reset":
        return w.reset(mode)
    if mode == "hang":
        await asyncio.sleep(3600)
    if mode == "slow":
        await asyncio.sleep(rule["ms"] / 1000)
    if mode == "http":
        w.reply(
            rule["status"],
            rule.get("body") or err(rule["status"], f"engine says {rule['status']}"),
            rule.get("headers", {}).items(),
        )
        return w.finish("done")
    st, ans = refuse(e, p, h, b, r, authed)
    if st:
        w.reply(st, ans)
        return w.finish("done")
    await generate(w, p, b, r, rule)


def _record(w, method, path, hdrs, h, raw, mode):
    """The body, and the request as it stands in the log from now on."""
    e = w.e
    e.seq += 1
    try:
        b = json.loads(raw)
    except ValueError:
        b = None
    w.rec = r = {
        "seq": e.seq,
        "role": e.role,
        "port": e.a.port,
        "engine_id": e.engine_id,
        "t": now(),
        "conn": w.no,
        "conn_req": w.nreq,
        "method": method,
        "path": path,
        "headers": hdrs,
        "raw": raw,
        "body": b,
        "marker": (MARK.findall(raw) or [None])[0],
        "mode": mode,
        "status": None,
        "t_head": None,
        "events": [],
        "sent": 0,
        "t_end": None,
        "outcome": "live",
        "why": "",
        "dup": False,
    }
    e.log.append(r)
    eid = h.get("x-request-id") or (b.get("request_id") if isinstance(b, dict) else None) or uuid.uuid4().hex
    r["dup"] = eid in e.live_ids
    if not r["dup"]:
        r["eid"] = eid
        e.live_ids[eid] = 1
    return b, r


async def generate(w, p, b, r, rule):
    if p == "/v1/videos":
        v = f"video_{uuid.uuid4().hex[:10]}"
        w.e.videos.add(v)
        w.reply(200, {"id": v, "object": "video", "status": "queued"})
        return w.finish("done")
    if p == "/v1/audio/speech":
        w.reply(200, b"RIFF" + b"\0" * 40 + b"\1\2" * 100, ctype="audio/wav")
        return w.finish("done")
    answer = Answer(w.e, p, b, r, rule)
    await (stream if b.get("stream") else whole)(w, answer)
