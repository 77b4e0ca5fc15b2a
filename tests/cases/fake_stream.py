"""An answer as events, and the ways in which a rule makes them go wrong."""

import asyncio
import json

from fake_words import now

ERROR = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
SOUND = ["UklGRgAA", "AQIDBAUG", "BwgJCgsM"]


async def stream(w, a):
    w.start_stream()
    if a.mode == "headers_reset":
        await asyncio.sleep(0.05)
        return w.reset(a.mode)
    if a.mode == "slow_body":
        await asyncio.sleep(a.rule["ms"] / 1000)
    if a.wait:
        await asyncio.sleep(a.wait / 1000)
    if a.mode == "empty_stream":
        return w.end_stream()
    events = Events(w, a)
    if a.chat and a.mode != "finish_error" and not (a.rule.get("n") == 0 and a.mode.endswith("_after")):
        await events.roles()
    for i in range(max(a.lim, 1)):
        if a.mode.endswith("_after") and i >= a.rule.get("n", 0):
            return await _break_off(w, a)
        await events.tokens(i)
        a.r["sent"] = i + 1
        await _pause(a, i)
    await events.end()
    w.end_stream()


class Events:
    def __init__(self, w, a):
        self.w, self.a = w, a
        self.nl = b"\r\n\r\n" if a.mode == "crlf" else b"\n\n"
        self.object = "chat.completion.chunk" if a.chat else "text_completion"
        self.hold = []

    async def roles(self):
        delta = {"role": "assistant", "content": ""}
        for ix in range(len(self.a.choices)):
            await self.emit(self.of([{"index": ix, "delta": delta, "logprobs": None, "finish_reason": None}]))

    async def tokens(self, i):
        """The i-th token of each choice."""
        a = self.a
        last = i >= a.lim - 1
        for ix, (m, _) in enumerate(a.choices):
            said = "" if a.lim == 0 else a.text(m, i)
            piece = {"delta": {"content": said} if a.lim else {}} if a.chat else {"text": said}
            end = {"logprobs": a.logprobs(i), "finish_reason": a.finish if last else None}
            more = {"kv_transfer_params": a.kv} if a.mode == "kvreply" and last else {}
            event = self.of([{"index": ix, **piece, **end}], **more)
            await self.emit(event, self.cut(event))
        if a.mode == "audio":
            sound = {**({"id": "audio_1"} if i == 0 else {}), "data": SOUND[min(i, 2)]}
            await self.emit(self.of([{"index": 0, "delta": {"audio": sound}, "finish_reason": None}]))

    async def end(self):
        a = self.a
        if (a.b.get("stream_options") or {}).get("include_usage"):
            await self.emit(self.of([], usage=a.usage()))
        if a.mode == "coalesce":
            self.w.chunk(b"".join(self.hold) + b"data: [DONE]\n\n")
        elif a.mode != "nodone":
            self.w.chunk(b"data: [DONE]" + self.nl)

    def of(self, choices, **more):
        body = {**self.a.base, "object": self.object, "choices": choices, **more}
        return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + self.nl

    def cut(self, event):
        """Where the event is cut into two writes; None for nowhere."""
        if self.a.mode == "split":
            return len(event) // 2
        if self.a.mode == "utf8split":
            starts = [z for z, ch in enumerate(event) if ch >= 0xC0]
            return starts[0] + 1 if starts else None
        return None

    async def emit(self, event, cut=None):
        self.a.r["events"].append(now())
        if self.a.mode == "coalesce":
            self.hold.append(event)
            return
        if cut:
            self.w.chunk(event[:cut])
            await asyncio.sleep(0.03)
            self.w.chunk(event[cut:])
        else:
            self.w.chunk(event)
        if self.a.mode == "comments":
            self.w.chunk(b": keep-alive\n\n")


async def _break_off(w, a):
    """A rule's end after so many tokens."""
    if a.mode == "reset_after":
        await asyncio.sleep(0.02)
        return w.reset(a.mode)
    if a.mode == "eof_after":
        w.finish("reset", a.mode)
        return w.tr.close()
    if a.mode == "stall_after":
        await asyncio.sleep(3600)
    if a.mode == "errevent_after":
        w.chunk(b"data: " + json.dumps({"error": ERROR}).encode() + b"\n\n")
        w.chunk(b"data: [DONE]\n\n")
    w.end_stream()  # end_after says nothing more


async def _pause(a, i):
    e, last = a.e, i >= a.lim - 1
    if not last and e.set["itl_ms"] and not (e.set["pair_ms"] and i % 2 == 0):
        await asyncio.sleep(e.set["itl_ms"] / 1000)
    elif not last and e.set["pair_ms"]:
        await asyncio.sleep(e.set["pair_ms"] / 1000)
    elif i % 50 == 49:
        await asyncio.sleep(0)
