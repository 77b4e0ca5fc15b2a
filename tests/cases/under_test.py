"""What a case gets: the gateway under test, and its four engines."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from urllib.parse import urlsplit

from client import Fail, Live, check, expected, in_time, new_marker, now, short


class G:
    """What a case gets: the gateway under test (base) and its four engines p[0], p[1], d[0], d[1]."""

    def __init__(self, base, engines, opts):
        self.base, self.opts, self.model = base, opts, opts.get("model", "fake-model")
        self.engines = engines
        self.p = [e for e in engines if e.role == "prefill"]
        self.d = [e for e in engines if e.role == "decode"]
        self.split = opts.get("contract") != "none"
        self.slack = float(opts.get("slack", 1))

    # -- bodies
    def chat(self, marker=None, n=4, stream=True, **kw):
        m = marker or new_marker()
        b = {
            "model": self.model,
            "messages": [{"role": "user", "content": f"say {m} please"}],
            "max_tokens": n,
            "stream": stream,
            **kw,
        }
        return m, {k: v for k, v in b.items() if v is not ...}

    def comp(self, marker=None, n=4, stream=False, **kw):
        m = marker or new_marker()
        b = {"model": self.model, "prompt": f"say {m} please", "max_tokens": n, "stream": stream, **kw}
        return m, {k: v for k, v in b.items() if v is not ...}

    # -- sending
    def live(self, body, path="/v1/chat/completions", headers=None, method="POST", **kw):
        return Live(self.base, method, path, body, headers, **kw)

    def send(self, body, path="/v1/chat/completions", headers=None, timeout=10, method="POST", **kw):
        l = self.live(body, path, headers, method, timeout=timeout * self.slack, **kw)
        r = l.read()
        l.close()
        return r

    def get(self, path, timeout=5, method="GET"):
        return self.send(None, path, timeout=timeout, method=method)

    def ask(self, timeout=10, headers=None, **kw):
        """One chat request with a marker of its own; resp.marker tells which."""
        m, b = self.chat(**kw)
        r = self.send(b, timeout=timeout, headers=headers)
        r.marker = m
        return r

    def many(self, count, /, **kw):
        out = [None] * count

        def one(i):
            try:
                out[i] = self.ask(**kw)
            except Exception as x:
                out[i] = x

        ts = [threading.Thread(target=one, args=(i,)) for i in range(count)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        for x in out:
            if isinstance(x, Exception):
                raise Fail(f"a concurrent request broke at the client: {x!r}")
        return out

    # -- looking
    def calls(self, marker, pool=None):
        """Every engine call that carries the marker, in order of time."""
        return sorted((r for e in pool or self.engines for r in e.log(marker)), key=lambda r: r["t"])

    def pd(self, marker):
        return self.calls(marker, self.p), self.calls(marker, self.d)

    def trail(self, marker):
        c = self.calls(marker)
        return "engine calls: " + (
            ", ".join(f"{r['name']}{'/' + r['mode'] if r['mode'] else ''}->{r['status']} {r['outcome']}" for r in c)
            or "none"
        )

    def quiet(self, within=1.0):
        """All engines idle within the time; else fail with who is still at work."""
        end = now() + within * self.slack
        while True:
            busy = {e.name: e.stats()["in_flight"] for e in self.engines}
            if not any(busy.values()):
                return
            in_time(now() < end, f"engines still have requests in flight {within} s later: {busy}")
            time.sleep(0.03)

    def wait(self, f, timeout, msg):
        end = now() + timeout * self.slack
        while not f():
            in_time(now() < end, msg)
            time.sleep(0.02)

    def good(self, r, n=4, marker=None):
        """The reply is a complete, right answer of n tokens."""
        m = marker or r.marker
        self.came(r)
        check(r.status == 200, f"expected a good answer, got {r.brief()}; {self.trail(m)}")
        check(r.complete, f"the answer is cut: {r.brief()}; {self.trail(m)}")
        want = expected(m, n)
        got = r.text()
        check(got == want, f"wrong text: got {short(got, 160)!r}, expected {short(want, 160)!r}; {self.trail(m)}")
        if r.ctype == "text/event-stream":
            check(r.dones == 1, f"[DONE] came {r.dones} times")
            check(not r.errors, f"an error event in a good stream: {short(r.errors)}")

    def came(self, r):
        in_time(r.err != "timeout", f"no whole answer in time: {r.brief()}; {self.trail(r.marker) if r.marker else ''}")

    def is_good(self, r, n=4):
        try:
            self.good(r, n)
            return True
        except Fail:
            return False

    def openai_error(self, r, status=None):
        """The reply is an error in OpenAI's shape; status: a number or a set of legal ones."""
        ok = {status} if isinstance(status, int) else status
        self.came(r)
        check(
            r.status >= 400 and (not ok or r.status in ok),
            f"expected an error with status {sorted(ok) if ok else '4xx/5xx'}, got {r.brief()}",
        )
        check(r.complete, f"the error body is cut: {r.brief()}")
        check(r.ctype == "application/json", f"error content-type is {r.ctype!r}, not application/json: {r.brief()}")
        e = r.json().get("error") if isinstance(r.json(), dict) else None
        check(isinstance(e, dict), f"error body has no 'error' object: {r.brief()}")
        miss = [k for k in ("message", "type", "param", "code") if k not in e]
        check(not miss, f"error object lacks {miss}: {short(e)}")
        check(isinstance(e["message"], str) and e["message"], f"error.message is not a text: {short(e)}")
        check(
            e["code"] is None or isinstance(e["code"], str),
            f"error.code must be a string or null, is {e['code']!r}",
        )
        return e

    def refused(self, r, status=range(500, 600)):
        """The reply is a whole error answer with one of these statuses, whatever its shape (shapes have their own cases)."""
        self.came(r)
        check(
            r.status in status and r.complete,
            f"expected an error answer, got {r.brief()}; {self.trail(r.marker) if r.marker else ''}",
        )

    def broken_stream(self, r, marker, n):
        """After a mid-stream death: an error event then one [DONE], properly ended; or a seamless full answer."""
        if self.is_good_marker(r, marker, n):
            return
        check(r.status == 200, f"status {r.status}: {r.brief()}")
        check(r.complete, f"the stream is cut off without an error event: {r.brief()}; {self.trail(marker)}")
        check(
            r.errors,
            f"the stream ends like a good one, although the engine died ({len(r.text())} of {len(expected(marker, n))} characters): {short(r.body[-300:])!r}; {self.trail(marker)}",
        )
        check(r.dones == 1, f"[DONE] came {r.dones} times after the error event")
        check(r.events()[-1][1].strip() == b"[DONE]", "[DONE] is not the last event")
        check(expected(marker, n).startswith(r.text()), f"text doubled or mixed up: {short(r.text())!r}")

    def is_good_marker(self, r, marker, n):
        r.marker = marker
        return self.is_good(r, n)

    def metrics(self):
        """Counter lines of the gateway's own metrics as {line: value}, {} when there are none."""
        url = self.opts.get("metrics_url") or self.base + "/metrics"
        u = urlsplit(url)
        try:
            l = Live(f"http://{u.netloc}", "GET", u.path or "/")
            r = l.read(3)
            l.close()
        except OSError:
            return {}
        if r.status != 200:
            return {}
        out = {}
        for line in r.body.decode("utf-8", "replace").splitlines():
            if line and line[0] != "#":
                k, _, v = line.rpartition(" ")
                with contextlib.suppress(ValueError):
                    out[k] = float(v)
        return out

    def grew(self, before, pattern):
        """Names of the metrics that match the pattern and grew since `before`."""
        return [k for k, v in self.metrics().items() if re.search(pattern, k, re.I) and v > before.get(k, 0)]

    def settle(self, pool, timeout=10):
        """Faults off; send bursts until every engine of the pool is used again (a breaker or a quarantine is over)."""
        for e in pool:
            e.up()
            e.ok()
        had = {e.name: len(e.log()) for e in pool}
        end = now() + timeout
        while now() < end:
            self.many(4, stream=False)
            if all(len(e.log()) > had[e.name] for e in pool):
                return True
            time.sleep(0.3)
        return False

    def hits(self, engine, mode, tries=8, n=4, stream=True, timeout=10, **rule):
        """Make `engine` misbehave and send requests until some reached it. Returns those replies (all judged by the
        caller). If the gateway's policy never picks this engine, the fault moves to its twin; then a burst."""
        twins = self.p if engine.role == "prefill" else self.d
        other = next(e for e in twins if e is not engine)
        seen = []
        if getattr(self, "hit", False):
            self.settle(twins)
        self.hit = True
        for e, o in ((engine, other), (other, engine)):
            o.ok()
            e.ok()
            e.rule(mode, **rule)
            for k in range(tries):
                r = self.ask(n=n, stream=stream, timeout=timeout)
                if any(c["mode"] == mode for c in e.log(r.marker)):
                    seen.append(r)
                if len(seen) >= 2:
                    return seen
            if not seen:
                rs = self.many(8, n=n, stream=stream, timeout=timeout)
                seen = [r for r in rs if any(c["mode"] == mode for c in e.log(r.marker))]
            if seen:
                return seen
        raise Fail(f"no request ever reached a faulty {engine.role} engine")
