"""The control port: what a test asks, and makes to go wrong."""

import json

from fake_state import DEFAULTS


async def control(w, method, path, hdrs, h, body):
    """What a test asks of the engine; answers with its counters."""
    e = w.e
    arg = json.loads(body) if body else {}
    if path == "/fake/log":
        return w.reply(200, e.log)
    if path == "/fake/rules":
        e.rules = arg
    elif path == "/fake/set":
        e.set.update(arg)
    elif path == "/fake/down":
        e.down()
    elif path == "/fake/blackhole":
        e.blackhole()
    elif path == "/fake/up":
        if arg.get("new_id"):
            e.engine_id = e.new_id()
        await e.up()
    elif path == "/fake/reset":
        await e.up()
        e.rules = []
        e.set = dict(DEFAULTS)
        e.videos.clear()
        e.seen_get.clear()
        for c in list(e.conns):
            if c.task:
                c.reset("fake reset")
        e.log = []
        e.live_ids.clear()
        e.nconn = len(e.conns)
    elif path != "/fake/stats":
        return w.reply(404, {"detail": "Not Found"})
    w.reply(200, e.stats())
