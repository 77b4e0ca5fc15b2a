"""An HTTP client that shows times and truncation, and the words that all cases share."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
import uuid
from urllib.parse import urlsplit

from fake_words import token

CASES = {}
now = time.monotonic


class Fail(AssertionError):
    pass


class Late(Fail):
    """What was to happen in some time did not: the fault may be the machine's, which stood still."""


class Skip(Exception):
    pass


def check(cond, msg):
    if not cond:
        raise Fail(msg)


def in_time(cond, msg):
    """`check` of how long something took."""
    if not cond:
        raise Late(msg)


def case(id, title, reports=(), kind="", dirty=False, timeout=30, needs=None, split=False):
    """Register a case. reports: note numbers (peers/notes.md) or 'brief'; dirty: may leave the gateway's breakers
    open, so the runner restarts it afterwards; needs: a gateway flavour ('mooncake') or an option name; split: assumes vLLM's
    two-leg contract (prefill of one token, its reply handed to decode), skipped with --opt contract=none."""

    def deco(f):
        assert id not in CASES, f"case {id} registered twice"
        CASES[id] = {
            "id": id,
            "title": title,
            "reports": list(reports),
            "kind": kind,
            "dirty": dirty,
            "timeout": timeout,
            "needs": needs,
            "split": split,
            "fn": f,
        }
        return f

    return deco


def short(x, n=300):
    s = (
        x
        if isinstance(x, str)
        else x.decode("utf-8", "replace")
        if isinstance(x, bytes)
        else json.dumps(x, ensure_ascii=False, default=str)
    )
    return s if len(s) <= n else s[:n] + "..."


def new_marker():
    return "mk-" + uuid.uuid4().hex[:8]


def expected(marker, n, start=0):
    return "".join(token(marker, i) for i in range(start, n))


# ------------------------------------------------------------------------------------------------ client
class Resp:
    """One answer. complete: the HTTP framing ended properly; err: why not."""

    def __init__(self):
        self.status = 0
        self.headers = []
        self.chunks = []
        self.complete = False
        self.err = ""
        self.t0 = self.t_head = self.t_end = 0.0
        self.marker = None

    @property
    def body(self):
        return b"".join(c for _, c in self.chunks)

    def header(self, name):
        v = [b for a, b in self.headers if a.lower() == name.lower()]
        return v[0] if v else None

    @property
    def ctype(self):
        return (self.header("content-type") or "").split(";")[0].strip().lower()

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            raise Fail(f"the body is not one JSON text (status {self.status}, {self.ctype}): {short(self.body)}")

    def events(self):
        """[(t, payload)] for each SSE event with data; t: when its last byte came."""
        out, buf = [], b""
        for t, c in self.chunks:
            buf += c
            while True:
                m = re.search(rb"\r?\n\r?\n", buf)
                if not m:
                    break
                ev, buf = buf[: m.start()], buf[m.end() :]
                data = [l[5:].lstrip(b" ") for l in ev.splitlines() if l.startswith(b"data:")]
                if data:
                    out.append((t, b"\n".join(data)))
        self.rest = buf
        return out

    def objs(self):
        """Parsed SSE payloads without [DONE]; a payload that is not JSON fails the case."""
        r = []
        for t, d in self.events():
            if d.strip() == b"[DONE]":
                continue
            try:
                r.append((t, json.loads(d)))
            except ValueError:
                raise Fail(f"an SSE event is not JSON: {short(d)}")
        return r

    @property
    def dones(self):
        return sum(d.strip() == b"[DONE]" for _, d in self.events())

    @property
    def errors(self):
        return [o for _, o in self.objs() if isinstance(o, dict) and o.get("error")]

    def finishes(self):
        return [c["finish_reason"] for _, o in self.objs() for c in o.get("choices") or [] if c.get("finish_reason")]

    def text(self, index=0):
        """Text of choice `index`, stream or not, chat or completion."""
        if self.ctype == "text/event-stream":
            cs = [c for _, o in self.objs() for c in o.get("choices") or []]
            return "".join(
                (c.get("delta") or {}).get("content") or c.get("text") or "" for c in cs if c.get("index", 0) == index
            )
        for c in self.json().get("choices") or []:
            if c.get("index", 0) == index:
                return c["message"]["content"] if "message" in c else c["text"]
        return ""

    def brief(self):
        return f"status {self.status} {self.ctype or '-'}{'' if self.complete else ' TRUNCATED(' + self.err + ')'} body {short(self.body, 260)!r}"


class Live:
    """A request under way on its own connection (or on a kept one): head(), read on, close() whenever you like."""

    def __init__(self, base, method, path, body=None, headers=None, sock=None, chunked=False, timeout=10):
        u = urlsplit(base)
        self.r = Resp()
        self.timeout = timeout
        self.buf = b""
        self.sock = sock or socket.create_connection((u.hostname, u.port), timeout=5)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        b = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        hs = [("Host", u.netloc)] + ([("Content-Type", "application/json")] if body is not None else [])
        extra = headers.items() if isinstance(headers, dict) else headers or []
        names = {k.lower() for k, _ in extra}
        hs = [h for h in hs if h[0].lower() not in names] + list(extra)
        if body is not None:
            hs.append(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(b))))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in hs) + "\r\n"
        self.r.t0 = now()
        if chunked:
            self.sock.sendall(head.encode())
            for i in range(0, len(b), 1000):
                self.sock.sendall(b"%x\r\n" % len(b[i : i + 1000]) + b[i : i + 1000] + b"\r\n")
            self.sock.sendall(b"0\r\n\r\n")
        else:
            try:
                self.sock.sendall(head.encode() + b)
            except OSError as x:
                self.r.err = f"send: {x!r}"  # an early refusal (413) may close on us: still read the answer

    def _recv(self, deadline):
        left = deadline - now()
        if left <= 0:
            self.r.err = "timeout"
            return None
        self.sock.settimeout(left)
        try:
            d = self.sock.recv(65536)
        except TimeoutError:
            self.r.err = "timeout"
            return None
        except OSError as x:
            self.r.err = f"reset: {x!r}"
            return None
        if not d:
            self.r.err = "closed early"
            return None
        self.buf += d
        return d

    def head(self, timeout=None):
        end = now() + (timeout or self.timeout)
        while True:
            while b"\r\n\r\n" not in self.buf:
                if self._recv(end) is None:
                    return self.r
            h, _, self.buf = self.buf.partition(b"\r\n\r\n")
            ls = h.decode("latin-1").split("\r\n")
            self.r.status = int(ls[0].split()[1])
            if self.r.status != 100:
                break
        self.r.headers = [tuple(x.strip() for x in l.partition(":")[::2]) for l in ls[1:]]
        self.r.t_head = now()
        return self.r

    def read(self, timeout=None, until=None):
        """Read the body to its end, or until until(resp) holds. Returns the Resp."""
        end = now() + (timeout or self.timeout)
        r = self.r
        if not r.status:
            self.head(timeout)
        if not r.status:
            r.t_end = now()
            return r
        h = {k.lower(): v for k, v in r.headers}
        if not hasattr(self, "mode"):
            self.mode = (
                "chunked"
                if "chunked" in h.get("transfer-encoding", "")
                else "len"
                if "content-length" in h
                else "close"
            )
            self.left = int(h.get("content-length", 0))
        while True:
            if self.mode == "chunked":
                i = self.buf.find(b"\r\n")
                if i >= 0:
                    try:
                        n = int(self.buf[:i].split(b";")[0], 16)
                    except ValueError:
                        r.err = "bad chunk size"
                        break
                    if len(self.buf) >= i + 4 + n:
                        d = self.buf[i + 2 : i + 2 + n]
                        self.buf = self.buf[i + 4 + n :]
                        if n == 0:
                            r.complete = True
                            break
                        r.chunks.append((now(), d))
                        if until and until(r):
                            return r
                        continue
            elif self.mode == "len":
                if self.buf:
                    d, self.buf = self.buf[: self.left], self.buf[self.left :]
                    self.left -= len(d)
                    r.chunks.append((now(), d))
                if self.left <= 0:
                    r.complete = True
                    break
                if until and until(r):
                    return r
            elif self.buf:
                r.chunks.append((now(), self.buf))
                self.buf = b""
            if self._recv(end) is None:
                if self.mode == "close" and r.err == "closed early":
                    r.complete, r.err = True, ""
                break
        if r.complete:
            r.err = ""
        r.t_end = now()
        return r

    def close(self):
        """Leave, as a client whose process went away does. Returns when."""
        t = now()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        return t
