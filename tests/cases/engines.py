"""Handles of the fake engines, and what their logs say."""

from __future__ import annotations

import http.client
import json


class Engine:
    def __init__(self, name, role, port, control):
        self.name, self.role, self.port, self.control = name, role, port, control

    def __repr__(self):
        return self.name

    def _ctl(self, path, arg=None):
        c = http.client.HTTPConnection("127.0.0.1", self.control, timeout=15)
        c.request("POST", path, json.dumps(arg) if arg is not None else None)
        d = json.loads(c.getresponse().read())
        c.close()
        return d

    def rule(self, mode, **kw):
        """Make every POST (or `times` of them, or those with `marker`) misbehave."""
        self.rules = [*getattr(self, "rules", []), {"mode": mode, **kw}]
        self._ctl("/fake/rules", self.rules)

    def ok(self):
        self.rules = []
        self._ctl("/fake/rules", [])

    def set(self, **kw):
        self._ctl("/fake/set", kw)

    def reset(self):
        self.rules = []
        self._ctl("/fake/reset")

    def down(self):
        self._ctl("/fake/down")

    def up(self, new_id=False):
        self._ctl("/fake/up", {"new_id": new_id})

    def blackhole(self):
        self._ctl("/fake/blackhole")

    def stats(self):
        return self._ctl("/fake/stats")

    def log(self, marker=None):
        return [dict(r, name=self.name) for r in self._ctl("/fake/log") if marker is None or marker in r["raw"]]


def kv_of(rec):
    return (rec["body"] or {}).get("kv_transfer_params") if isinstance(rec["body"], dict) else None


def rids(rec):
    return [v for k, v in rec["headers"] if k.lower() == "x-request-id"]


def hdr(rec, name):
    return next((v for k, v in rec["headers"] if k.lower() == name.lower()), None)
