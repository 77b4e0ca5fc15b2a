#!/usr/bin/env python3
"""A fake vLLM-style engine for behaviour tests of prefill/decode gateways (standard library only, one file).

usage: fake_engine.py --role prefill|decode --port N --control N [--bootstrap N] [--kv nixl|mooncake] [--model NAME]

Data port (what a gateway talks to): POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/videos,
  /v1/audio/speech; GET /v1/models, /health, /ping, /version, /metrics, /query, a few server-info pages.
Control port (what the test talks to; never affected by faults):
  GET  /fake/log            every POST seen: raw body, header list, connection number, times, what became of it
  GET  /fake/stats          counters and the number of requests now in flight
  POST /fake/reset          forget log, rules and settings; come up again if down
  POST /fake/rules  [..]    fault rules, first match wins: {"mode":M, "times":K|null, "marker":S|null, ...}
  POST /fake/set    {..}    settings, see DEFAULTS
  POST /fake/down           close the listener, reset every connection (connection refused from now on)
  POST /fake/up     {"new_id":bool}    listen again
  POST /fake/blackhole      listener with a full backlog: connects hang
Times are CLOCK_MONOTONIC seconds, so a test on the same machine may compare them with its own.

Engine manners copied from what vLLM 0.32 was seen to do: error shape {"error":{message,type,param,code:int}};
400 for min_tokens > max_tokens, for stream_options without stream, for a non-object kv_transfer_params, for a too
long prompt; 404 unknown model; 500 for {"do_remote_prefill":true} without the remote fields; kv_transfer_params only
in non-stream replies and only when the request finished by length; the data port never sends it in stream chunks
(unless the `kvreply` rule asks for it).

Rule modes: http(status, headers, body) reset hang slow(ms) slow_body(ms) headers_reset
  reset_after(n) eof_after(n) end_after(n) stall_after(n) errevent_after(n) nodone empty_stream
  finish_error finish_abort eosfirst nokv kvabsent kvreply
  split utf8split coalesce comments crlf short_body bad_json stale audio
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import struct
import sys
import time
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
MARK = re.compile(r"mk-[0-9a-f]{8}")
now = time.monotonic


def token(marker, i):
    """The i-th token that an engine makes for the request carrying `marker`; every third has non-ASCII text."""
    return f" {marker}.{i}" + ("\u65e5\u672c\u00e9" if i % 3 == 2 else "")


def err(status, message, typ=None, param=None):
    names = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
    return {
        "error": {
            "message": message,
            "type": typ or names.get(status, "InternalServerError"),
            "param": param,
            "code": status,
        }
    }


class Engine:
    def __init__(self, a):
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
                self.server = await loop.create_server(lambda: Wire(self, False), "127.0.0.1", self.a.port, backlog=512)
                if self.a.bootstrap:
                    self.boot = await loop.create_server(lambda: Wire(self, False), "127.0.0.1", self.a.bootstrap)
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


class Wire(asyncio.Protocol):
    """One TCP connection: parse HTTP/1.1 requests one after another; notice the peer's leaving at once."""

    def __init__(self, eng, control):
        self.e, self.control = eng, control

    def connection_made(self, tr):
        self.tr = tr
        self.buf = b""
        self.task = None
        self.rec = None
        self.nreq = 0
        self.t_idle = now()
        self.gone = False
        tr.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.control:
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
            await (self.control_req(*a) if self.control or a[1].startswith("/fake/") else self.serve(*a))
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

    # ---- replies
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

    async def control_req(self, method, path, hdrs, h, body):
        e = self.e
        arg = json.loads(body) if body else {}
        if path == "/fake/log":
            return self.reply(200, e.log)
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
            return self.reply(404, {"detail": "Not Found"})
        self.reply(200, e.stats())

    async def serve(self, method, path, hdrs, h, body):
        e = self.e
        p = path.split("?")[0]
        authed = not e.set["key"] or h.get("authorization") == "Bearer " + e.set["key"]
        if method != "POST":
            e.seen_get.append([method, p, h.get("authorization")])
            if p in ("/health", "/ping"):
                if e.set["health"] == "hang":
                    await asyncio.sleep(600)
                return self.reply(e.set["health"], b"", ctype="text/plain")
            if p == "/v1/models":
                if not authed:
                    return self.reply(401, {"error": "Unauthorized"})
                return self.reply(
                    200,
                    {
                        "object": "list",
                        "data": [
                            {
                                "id": e.model,
                                "object": "model",
                                "created": 1700000000,
                                "owned_by": "vllm",
                                "root": e.model,
                                "parent": None,
                                "max_model_len": 32768,
                                "permission": [],
                            }
                        ],
                    },
                )
            if p == "/query":
                return self.reply(
                    200,
                    {
                        "0": {
                            "engine_id": e.engine_id,
                            "worker_addr": {"0": {"0": f"tcp://127.0.0.1:{e.a.port + 1}"}},
                        }
                    },
                )
            if p == "/version":
                return self.reply(200, {"version": "0.32.0"})
            if p == "/metrics":
                return self.reply(
                    200,
                    f'vllm:num_requests_running{{model_name="{e.model}"}} {e.stats()["in_flight"]}\nvllm:num_requests_waiting{{model_name="{e.model}"}} 0\n'.encode(),
                    ctype="text/plain",
                )
            if p in ("/get_server_info", "/server_info", "/get_model_info", "/model_info"):
                return self.reply(
                    200,
                    {
                        "model_id": e.model,
                        "model_path": e.model,
                        "served_model_name": e.model,
                        "tp_size": 1,
                        "dp_size": 1,
                        "is_generation": True,
                        "version": "0.5.0",
                        "disaggregation_mode": e.role,
                    },
                )
            if p.startswith("/v1/videos/"):
                v = p.split("/")[3]
                return (
                    self.reply(200, {"id": v, "object": "video", "status": "completed"})
                    if v in e.videos
                    else self.reply(404, err(404, "no such video"))
                )
            return self.reply(404, {"detail": "Not Found"})
        raw = body.decode("utf-8", "replace")
        rule = e.rule_for(raw)
        mode = rule.get("mode", "")
        e.seq += 1
        try:
            b = json.loads(raw)
        except ValueError:
            b = None
        self.rec = r = {
            "seq": e.seq,
            "role": e.role,
            "port": e.a.port,
            "engine_id": e.engine_id,
            "t": now(),
            "conn": self.no,
            "conn_req": self.nreq,
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
        if mode == "stale" and self.nreq > 1 or mode == "reset":
            return self.reset(mode)
        if mode == "hang":
            await asyncio.sleep(3600)
        if mode == "slow":
            await asyncio.sleep(rule["ms"] / 1000)
        if mode == "http":
            self.reply(
                rule["status"],
                rule.get("body") or err(rule["status"], f"engine says {rule['status']}"),
                rule.get("headers", {}).items(),
            )
            return self.finish("done")
        st, ans = self.refuse(p, h, b, r, authed)
        if st:
            self.reply(st, ans)
            return self.finish("done")
        await self.generate(p, b, r, rule, mode)

    def refuse(self, p, h, b, r, authed):
        """vLLM's own refusals: (status, body) or (0, None)."""
        e = self.e
        if not authed:
            return 401, {"error": "Unauthorized"}
        if p not in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/videos", "/v1/audio/speech"):
            return 404, {"detail": "Not Found"}
        if not isinstance(b, dict):
            return 400, err(400, "1 validation error: JSON decode error", "Bad Request", "body")
        if b.get("model") not in (None, e.model):
            return 404, err(404, f"The model `{b.get('model')}` does not exist.", None, "model")
        if r["dup"]:
            return 400, err(400, f"Request id {h.get('x-request-id')} already running")
        lim = b.get("max_completion_tokens") or b.get("max_tokens") or b.get("max_output_tokens")
        if b.get("max_tokens") is not None and b["max_tokens"] < 1:
            return 400, err(400, f"max_tokens must be at least 1, got {b['max_tokens']}.", None, "max_tokens")
        if lim and (b.get("min_tokens") or 0) > lim:
            return 400, err(400, f"min_tokens must be less than or equal to max_tokens={lim}, got {b['min_tokens']}.")
        if b.get("stream_options") is not None and not b.get("stream"):
            return 400, err(
                400, "Stream options can only be defined when `stream=True`.", "Bad Request", "stream_options"
            )
        k = b.get("kv_transfer_params")
        if k is not None and not isinstance(k, dict):
            return 400, err(400, "Input should be a valid dictionary", "Bad Request", "body.kv_transfer_params")
        if p == "/v1/chat/completions" and not b.get("messages"):
            return 400, err(400, "messages must not be empty", None, "messages")
        if p == "/v1/completions" and not b.get("prompt"):
            return 400, err(
                400,
                "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
                None,
                "prompt",
            )
        if e.set["max_chars"] and len(r["raw"]) > e.set["max_chars"]:
            return 400, err(
                400,
                f"This model's maximum context length is 2048 tokens. However, your prompt contains {len(r['raw'])} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={len(r['raw'])})",
                None,
                "input_tokens",
            )
        if (
            k
            and k.get("do_remote_prefill")
            and e.kv == "nixl"
            and not (k.get("remote_engine_id") and k.get("remote_host") and k.get("remote_block_ids"))
        ):
            return 500, err(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if k and k.get("do_remote_prefill") and (b.get("prompt_logprobs") is not None or b.get("echo")):
            return 500, err(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        return 0, None

    def handoff(self, b, mode, rid, finish):
        e = self.e
        k = b.get("kv_transfer_params") or {}
        if mode == "kvreply" or (
            k.get("do_remote_decode") and e.kv == "nixl" and mode not in ("nokv", "kvabsent") and finish == "length"
        ):
            return {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_block_ids": [[e.seq, e.seq + 1]],
                "remote_engine_id": e.engine_id,
                "remote_request_id": rid,
                "remote_host": "127.0.0.1",
                "remote_port": e.a.port + 1000,
                "tp_size": 1,
                "dcp_size": 1,
                "pp_size": 1,
                "remote_num_tokens": 7,
                "remote_blocks_expiry_time": None,
                "transfer_mode": "pull",
            }
        return None

    async def generate(self, p, b, r, rule, mode):
        e = self.e
        if p == "/v1/videos":
            v = f"video_{uuid.uuid4().hex[:10]}"
            e.videos.add(v)
            self.reply(200, {"id": v, "object": "video", "status": "queued"})
            return self.finish("done")
        if p == "/v1/audio/speech":
            self.reply(200, b"RIFF" + b"\0" * 40 + b"\1\2" * 100, ctype="audio/wav")
            return self.finish("done")
        chat = p == "/v1/chat/completions"
        lim = b.get("max_completion_tokens") or b.get("max_tokens") or b.get("max_output_tokens") or e.set["tokens"]
        n = b.get("n") or 1
        prompts = (
            [None]
            if chat or p == "/v1/responses"
            else b["prompt"]
            if isinstance(b["prompt"], list) and b["prompt"] and not isinstance(b["prompt"][0], int)
            else [b["prompt"]]
        )
        marks = [
            (MARK.findall(json.dumps(q)) or ["mk-none"])[0] if q is not None else r["marker"] or "mk-none"
            for q in prompts
        ]
        choices = [(m, c) for m in marks for c in range(n)]
        k = b.get("kv_transfer_params") or {}
        bool(k.get("do_remote_decode"))
        finish = "length" if (b.get("max_tokens") or b.get("max_completion_tokens")) else "stop"
        if mode == "eosfirst" and not b.get("ignore_eos"):
            lim, finish = 1, "stop"
        if mode == "finish_error":
            lim, finish = 0, "error"
        if mode == "finish_abort":
            lim, finish = 0, "abort"
        rid = ("chatcmpl-" if chat else "cmpl-") + r["eid"]
        wait = e.set["prefill_ms"] if e.role == "prefill" else e.set["ttft_ms"]
        kv = self.handoff(b, mode, rid, finish)
        det = None if e.set["cached"] is None else {"cached_tokens": e.set["cached"]}
        usage = {
            "prompt_tokens": 7,
            "total_tokens": 7 + lim * len(choices),
            "completion_tokens": lim * len(choices),
            "prompt_tokens_details": det,
        }
        lp = lambda i: (
            None
            if not b.get("logprobs")
            else (
                {"content": [{"token": f"t{i}", "logprob": -0.5 - i, "bytes": None, "top_logprobs": []}]}
                if chat
                else {"tokens": [f"t{i}"], "token_logprobs": [-0.5 - i], "text_offset": [0], "top_logprobs": None}
            )
        )
        base = {"id": rid, "created": 1700000000, "model": e.model}
        plp = (
            [None, {"5": {"logprob": -0.25, "rank": 1, "decoded_token": "x"}}]
            if b.get("prompt_logprobs") is not None
            else None
        )

        def text(m, i):
            pre = b["prompt"] if b.get("echo") and i == 0 and isinstance(b.get("prompt"), str) else ""
            return pre + token(m, i)

        if not b.get("stream"):
            if wait:
                await asyncio.sleep(wait / 1000)
            if e.set["itl_ms"] and e.role != "prefill":
                await asyncio.sleep(e.set["itl_ms"] * lim / 1000)
            out = []
            for ix, (m, c) in enumerate(choices):
                t = "".join(text(m, i) for i in range(lim))
                L = None
                if b.get("logprobs"):
                    parts = [lp(i) for i in range(lim)]
                    L = (
                        {"content": [x for q in parts for x in q["content"]]}
                        if chat
                        else {
                            "tokens": [q["tokens"][0] for q in parts],
                            "token_logprobs": [q["token_logprobs"][0] for q in parts],
                            "text_offset": [0] * lim,
                            "top_logprobs": None,
                        }
                    )
                ch = {"index": ix, "logprobs": L, "finish_reason": finish, "stop_reason": None}
                out.append(
                    {**ch, "message": {"role": "assistant", "content": t, "refusal": None}}
                    if chat
                    else {**ch, "text": t, "prompt_logprobs": plp}
                )
            j = {
                **base,
                "object": "chat.completion" if chat else "text_completion",
                "choices": out,
                "usage": usage,
                "service_tier": None,
                "system_fingerprint": "fake",
            }
            if chat:
                j["prompt_logprobs"] = plp
            if p == "/v1/responses":
                j = {
                    "id": "resp_" + r["eid"],
                    "object": "response",
                    "status": "completed",
                    "model": e.model,
                    "output": [
                        {
                            "type": "message",
                            "role": "assistant",
                            "content": [
                                {"type": "output_text", "text": "".join(token(marks[0], i) for i in range(lim))}
                            ],
                        }
                    ],
                }
            if mode != "kvabsent":
                j["kv_transfer_params"] = kv
            data = json.dumps(j, ensure_ascii=False).encode()
            r["sent"] = lim
            if mode == "slow_body":
                self.tr.write(
                    f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode()
                )
                r["t_head"] = now()
                r["status"] = 200
                await asyncio.sleep(rule["ms"] / 1000)
                self.tr.write(data)
                return self.finish("done")
            if mode == "bad_json":
                self.reply(200, data[: len(data) // 2])
                return self.finish("done")
            if mode == "short_body" or mode.endswith("_after") or mode in ("headers_reset", "empty_stream"):
                if mode == "stall_after":
                    self.reply(200, data[:20], declare=len(data))
                    await asyncio.sleep(3600)
                self.reply(200, data[: len(data) // 2], declare=len(data))
                await asyncio.sleep(0.02)
                return self.reset(mode) if "reset" in mode else (self.finish("reset", mode), self.tr.close())[1]
            self.reply(200, data)
            return self.finish("done")
        # ---- stream
        nl = b"\r\n\r\n" if mode == "crlf" else b"\n\n"
        ev = lambda obj: b"data: " + json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode() + nl
        obj = "chat.completion.chunk" if chat else "text_completion"
        self.start_stream()
        if mode == "headers_reset":
            await asyncio.sleep(0.05)
            return self.reset(mode)
        if mode == "slow_body":
            await asyncio.sleep(rule["ms"] / 1000)
        if wait:
            await asyncio.sleep(wait / 1000)
        if mode == "empty_stream":
            self.tr.write(b"0\r\n\r\n")
            return self.finish("done")
        hold = []

        async def emit(x, cut=None):
            r["events"].append(now())
            if mode == "coalesce":
                hold.append(x)
                return
            if cut:
                self.chunk(x[:cut])
                await asyncio.sleep(0.03)
                self.chunk(x[cut:])
            else:
                self.chunk(x)
            if mode == "comments":
                self.chunk(b": keep-alive\n\n")

        if chat and mode not in ("finish_error",) and not (rule.get("n") == 0 and mode.endswith("_after")):
            for ix in range(len(choices)):
                await emit(
                    ev(
                        {
                            **base,
                            "object": obj,
                            "choices": [
                                {
                                    "index": ix,
                                    "delta": {"role": "assistant", "content": ""},
                                    "logprobs": None,
                                    "finish_reason": None,
                                }
                            ],
                        }
                    )
                )
        for i in range(max(lim, 1)):
            if mode.endswith("_after") and i >= rule.get("n", 0):
                if mode == "reset_after":
                    await asyncio.sleep(0.02)
                    return self.reset(mode)
                if mode == "eof_after":
                    self.finish("reset", mode)
                    return self.tr.close()
                if mode == "end_after":
                    self.tr.write(b"0\r\n\r\n")
                    return self.finish("done")
                if mode == "stall_after":
                    await asyncio.sleep(3600)
                if mode == "errevent_after":
                    self.chunk(
                        b'data: {"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
                    )
                    self.chunk(b"data: [DONE]\n\n")
                    self.tr.write(b"0\r\n\r\n")
                    return self.finish("done")
            last = i >= lim - 1
            for ix, (m, c) in enumerate(choices):
                d = {} if lim == 0 else {"content": text(m, i)}
                fin = finish if last else None
                x = {
                    **base,
                    "object": obj,
                    "choices": [
                        {"index": ix, "delta": d, "logprobs": lp(i), "finish_reason": fin}
                        if chat
                        else {
                            "index": ix,
                            "text": "" if lim == 0 else text(m, i),
                            "logprobs": lp(i),
                            "finish_reason": fin,
                        }
                    ],
                }
                if mode == "kvreply" and last:
                    x["kv_transfer_params"] = kv
                q = ev(x)
                cut = None
                if mode == "split":
                    cut = len(q) // 2
                if mode == "utf8split":
                    u = [z for z, ch in enumerate(q) if ch >= 0xC0]
                    cut = u[0] + 1 if u else None
                await emit(q, cut)
            if mode == "audio":
                await emit(
                    ev(
                        {
                            **base,
                            "object": obj,
                            "choices": [
                                {
                                    "index": 0,
                                    "delta": {
                                        "audio": {
                                            **({"id": "audio_1"} if i == 0 else {}),
                                            "data": ["UklGRgAA", "AQIDBAUG", "BwgJCgsM"][min(i, 2)],
                                        }
                                    },
                                    "finish_reason": None,
                                }
                            ],
                        }
                    )
                )
            r["sent"] = i + 1
            if not last and e.set["itl_ms"] and not (e.set["pair_ms"] and i % 2 == 0):
                await asyncio.sleep(e.set["itl_ms"] / 1000)
            elif not last and e.set["pair_ms"]:
                await asyncio.sleep(e.set["pair_ms"] / 1000)
            elif i % 50 == 49:
                await asyncio.sleep(0)
        if (b.get("stream_options") or {}).get("include_usage"):
            await emit(ev({**base, "object": obj, "choices": [], "usage": usage}))
        if mode == "coalesce":
            self.chunk(b"".join(hold) + b"data: [DONE]\n\n")
        elif mode != "nodone":
            self.chunk(b"data: [DONE]" + nl)
        self.tr.write(b"0\r\n\r\n")
        self.finish("done")


async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--role", default="decode")
    ap.add_argument("--port", type=int, required=True)
    ap.add_argument("--control", type=int, required=True)
    ap.add_argument("--bootstrap", type=int)
    ap.add_argument("--kv", default="nixl")
    ap.add_argument("--model", default="fake-model")
    a = ap.parse_args()
    e = Engine(a)
    loop = asyncio.get_running_loop()
    await e.up()
    await loop.create_server(lambda: Wire(e, True), "127.0.0.1", a.control)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)  # never outlive the runner


if __name__ == "__main__":
    asyncio.run(main())
