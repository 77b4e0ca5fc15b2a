#!/usr/bin/env python3
"""A fake vLLM-style engine for behaviour tests of prefill/decode gateways (standard library only).

usage: fake_engine.py --role prefill|decode --port N --control N [--bootstrap N] [--kv nixl|mooncake] [--model NAME]

Data port (what a gateway talks to): POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/videos,
  /v1/audio/speech; GET /v1/models, /health, /ping, /version, /metrics, /query, a few server-info pages.
Control port (what the test talks to; never affected by faults):
  GET  /fake/log            every POST seen: raw body, header list, connection number, times, what became of it
  GET  /fake/stats          counters and the number of requests now in flight
  POST /fake/reset          forget log, rules and settings; come up again if down
  POST /fake/rules  [..]    fault rules, first match wins: {"mode":M, "times":K|null, "marker":S|null, ...}
  POST /fake/set    {..}    settings, see DEFAULTS in fake_state.py
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
import os

from fake_control import control
from fake_serve import serve
from fake_state import Engine
from fake_wire import Wire


async def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--role", default="decode")
    ap.add_argument("--port", type=int, required=True)
    ap.add_argument("--control", type=int, required=True)
    ap.add_argument("--bootstrap", type=int)
    ap.add_argument("--kv", default="nixl")
    ap.add_argument("--model", default="fake-model")
    a = ap.parse_args()
    e = Engine(a, lambda engine: Wire(engine, serve, control))
    loop = asyncio.get_running_loop()
    await e.up()
    await loop.create_server(lambda: Wire(e, serve, control, inside=True), "127.0.0.1", a.control)
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)  # never outlive the runner


if __name__ == "__main__":
    asyncio.run(main())
