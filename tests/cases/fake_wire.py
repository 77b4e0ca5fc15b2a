"""HTTP/1.1 on one connection of a fake engine: requests one after another, and the peer's leaving noticed at once."""

import asyncio
import contextlib
import json
import socket
import struct
import sys

from fake_words import now


class Wire(asyncio.Protocol):
    """`serve` and `control` answer a request: `(wire, method, path, header list, headers, body)`. On the control port
    everything is for `control`."""

    def __init__(self, eng, serve, control, inside=False):
        self.e, self.serve, self.control, self.inside = eng, serve, control, inside

    def connection_made(self, tr):
        self.tr = tr
        self.buf = b""
        self.task = None
        self.rec = None
        self.nreq = 0
        self.t_idle = now()
        self.gone = False
        tr.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.inside:
            self.e.conns.add(self)
            self.e.nconn += 1
            self.no = self.e.nconn
            asyncio.get_running_loop().create_task(self.idle_watch())

    async def idle_watch(self):
        while not self.gone:
            await asyncio.sleep(0.02)
            ms = self.e.set["idle_ms"]
            if ms and not self.task and self.nreq and (now() - self.t_idle) * 1000 >= ms:
                self.tr.close()
                return

    def connection_lost(self, exc):
        self.lost("connection_lost")

    def eof_received(self):
        self.lost("eof")
        return False

    def lost(self, why):
        if self.gone:
            return
        self.gone = True
        self.e.conns.discard(self)
        if self.rec and self.rec["outcome"] == "live":
            self.finish("aborted", why)
        if self.task:
            self.task.cancel()

    def finish(self, outcome, why=""):
        r = self.rec
        if r and r["outcome"] == "live":
            r["outcome"], r["why"], r["t_end"] = outcome, why, now()
            self.e.live_ids.pop(r.get("eid"), None)

    def reset(self, why):
        self.finish("reset", why)
        s = self.tr.get_extra_info("socket")
        with contextlib.suppress(OSError):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.tr.abort()

    def data_received(self, d):
        self.buf += d
        if not self.task:
            self.next()

    def next(self):
        i = self.buf.find(b"\r\n\r\n")
        if i < 0:
            return
        lines = self.buf[:i].decode("latin-1").split("\r\n")
        hdrs = [[k.strip(), v.strip()] for k, _, v in (l.partition(":") for l in lines[1:])]
        h = {k.lower(): v for k, v in hdrs}
        rest = self.buf[i + 4 :]
        if "chunked" in h.get("transfer-encoding", ""):
            body, p = b"", 0
            while True:
                j = rest.find(b"\r\n", p)
                if j < 0:
                    return
                n = int(rest[p:j].split(b";")[0], 16)
                p = j + 2
                if len(rest) < p + n + 2:
                    return
                body += rest[p : p + n]
                p += n + 2
                if n == 0:
                    break
        else:
            p = int(h.get("content-length", "0"))
            if len(rest) < p:
                if "100-continue" in h.get("expect", "").lower() and not getattr(self, "cont", False):
                    self.cont = True
                    self.tr.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body = rest[:p]
        self.cont = False
        self.buf = rest[p:]
        self.nreq += 1
        method, path = ([*lines[0].split(" "), "", ""])[:2]
        self.task = asyncio.get_running_loop().create_task(self.run(method, path, hdrs, h, body))

    async def run(self, *a):
        try:
            await (self.control if self.inside or a[1].startswith("/fake/") else self.serve)(self, *a)
        except asyncio.CancelledError:
            pass
        except Exception as x:
            print("fake_engine:", repr(x), file=sys.stderr, flush=True)
            if not self.gone:
                self.finish("reset", repr(x))
                self.tr.abort()
        self.task = None
        self.t_idle = now()
        if not self.gone and self.buf:
            self.next()

    def reply(self, status, obj, headers=(), ctype="application/json", declare=None):
        b = obj if isinstance(obj, bytes) else json.dumps(obj, ensure_ascii=False).encode()
        h = f"HTTP/1.1 {status} X\r\ncontent-type: {ctype}\r\ncontent-length: {declare or len(b)}\r\n" + "".join(
            f"{k}: {v}\r\n" for k, v in headers
        )
        if self.rec:
            self.rec["status"] = status
            self.rec["t_head"] = self.rec["t_head"] or now()
        self.tr.write(h.encode() + b"\r\n" + b)

    def chunk(self, b):
        if not self.gone:
            self.tr.write(b"%x\r\n" % len(b) + b + b"\r\n")

    def start_stream(self):
        self.rec["status"] = 200
        self.rec["t_head"] = now()
        self.tr.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def end_stream(self):
        self.tr.write(b"0\r\n\r\n")
        self.finish("done")
