"""One fake engine: what it was told, what it was asked, and whether it listens."""

import asyncio
import contextlib
import socket
import uuid

DEFAULTS = {
    "itl_ms": 0,
    "ttft_ms": 0,
    "prefill_ms": 0,
    "idle_ms": 0,
    "tokens": 6,
    "health": 200,
    "max_chars": 0,
    "key": None,
    "cached": None,
    "pair_ms": 0,
    "models": None,
}


class Engine:
    """`wire(engine)` makes the protocol of one connection to its data port."""

    def __init__(self, a, wire):
        self.wire = wire
        self.a, self.role, self.model, self.kv = a, a.role, a.model, a.kv
        self.set = dict(DEFAULTS)
        self.rules = []
        self.log = []
        self.seq = 0
        self.conns = set()
        self.nconn = 0
        self.engine_id = self.new_id()
        self.server = self.boot = None
        self.hole = []
        self.videos = set()
        self.seen_get = []
        self.live_ids = {}

    def new_id(self):
        return "eng-" + uuid.uuid4().hex[:10]

    async def up(self):
        if self.server:
            return
        for s in self.hole:
            s.close()
        self.hole = []
        loop = asyncio.get_running_loop()
        for _ in range(100):
            try:
                self.server = await loop.create_server(lambda: self.wire(self), "127.0.0.1", self.a.port, backlog=512)
                if self.a.bootstrap:
                    self.boot = await loop.create_server(lambda: self.wire(self), "127.0.0.1", self.a.bootstrap)
                return
            except OSError:
                await asyncio.sleep(0.02)

    def down(self):
        if self.server:
            self.server.close()
            self.server = None
        if self.boot:
            self.boot.close()
            self.boot = None
        for c in list(self.conns):
            c.reset("engine went down")

    def blackhole(self):
        self.down()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", self.a.port))
        s.listen(0)
        self.hole = [s]
        for _ in range(4):  # fill the queue; later SYNs are dropped
            c = socket.socket()
            c.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                c.connect(("127.0.0.1", self.a.port))
            self.hole.append(c)

    def rule_for(self, raw):
        for r in self.rules:
            if r.get("times") == 0:
                continue
            if r.get("marker") and r["marker"] not in raw:
                continue
            if r.get("times"):
                r["times"] -= 1
            return r
        return {}

    def stats(self):
        live = [r["seq"] for r in self.log if r["outcome"] == "live"]
        return {
            "role": self.role,
            "port": self.a.port,
            "engine_id": self.engine_id,
            "requests": len(self.log),
            "in_flight": len(live),
            "aborted": sum(r["outcome"] == "aborted" for r in self.log),
            "done": sum(r["outcome"] == "done" for r in self.log),
            "conns_now": len(self.conns),
            "conns_total": self.nconn,
            "gets": self.seen_get[-50:],
        }
