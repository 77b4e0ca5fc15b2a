"""Engines that answer what a test wrote, in vLLM 0.32's shapes: for clients to whom the model's words matter.

    scripted = Scripted("m", {"What is the weather": [ToolCall("get_weather", {"city": "Paris"}), Text("Sunny.")]})
    async with engine_server() as engine:
        engine.play = scripted.play

A decode call (or one that is not split) whose messages have a cue in them gets the next of that cue's answers; prefill
is always answered with a NIXL handoff. Tool calls are streamed as vLLM's `hermes_tool_parser` does: the id and the name
first, then the arguments in pieces, then an end without content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from engines.sim import shapes
from engines.sim.handoff import returned
from engines.sim.shapes import Head, Json
from tests.fakes.script import Script, Seen, json_reply, sse_reply

CHAT = "/v1/chat/completions"
PROMPT_IDS = [1, 2, 3, 4, 5]
"""What every prompt becomes."""
CREATED = 1_700_000_000
CHANNEL = "duet+ipc:///nowhere/rows"
"""Where a Talker would hear these engines; they tell it nothing."""
MAX_LEN = 4096
_PIECE = 7
"""Characters of a streamed piece."""


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class ToolCall:
    """`arguments` as a string go out as they are, valid JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str

    @property
    def json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Refusal:
    """`retry_after` in seconds, None for no such header."""

    status: int
    message: str
    retry_after: float | None = None


Answer = Text | ToolCall | Refusal
Answers = Sequence[Answer | Callable[[Json], Answer]]
"""One a call. A function looks at the body first."""


@dataclass
class Scripted:
    """`prefills` and `decodes` are the bodies seen, in order. No further answer for a cue is a 400 that says so."""

    model: str
    book: Mapping[str, Answers]
    prefills: list[Json] = field(default_factory=list)
    decodes: list[Json] = field(default_factory=list)
    _given: dict[str, int] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=count)

    def play(self, seen: Seen) -> Script:
        if seen.path == "/health":
            return json_reply({})
        if seen.path == "/v1/models":
            return json_reply(shapes.models(self.model, MAX_LEN, CREATED))
        if seen.path == "/duet/identity":
            return json_reply({"stage": "thinker", "channel": CHANNEL})
        if seen.path != CHAT:
            return _refused(Refusal(404, f"no script for {seen.path}"))
        head = Head(True, f"chatcmpl-{seen.headers['x-request-id']}", self.model, CREATED)
        body = seen.json
        if seen.leg == "prefill":
            self.prefills.append(body)
            return _prefilled(head)
        self.decodes.append(body)
        answer = self._next(body)
        if isinstance(answer, Refusal):
            return _refused(answer)
        return self._streamed(head, answer, body) if body.get("stream") else self._whole(head, answer)

    def calls_of(self, cue: str) -> list[Json]:
        """The decode bodies that a cue answered."""
        return [body for body in self.decodes if _has(body, cue)]

    def _next(self, body: Json) -> Answer:
        cue = next((cue for cue in self.book if _has(body, cue)), None)
        if cue is None:
            return Refusal(400, f"no cue of {', '.join(self.book)} is in these messages")
        turn = self._given.get(cue, 0)
        self._given[cue] = turn + 1
        if turn >= len(self.book[cue]):
            return Refusal(400, f"the script has {turn} answers for {cue!r}, and this is one call more")
        answer = self.book[cue][turn]
        return answer(body) if callable(answer) else answer

    def _tool_id(self) -> str:
        return f"chatcmpl-tool-{next(self._ids):032x}"

    def _whole(self, head: Head, answer: Text | ToolCall) -> Script:
        message: Json = {"role": "assistant", "content": None, "refusal": None, "reasoning": None, "tool_calls": []}
        if isinstance(answer, Text):
            message["content"] = answer.text
        else:
            function = {"name": answer.name, "arguments": answer.json}
            message["tool_calls"] = [{"id": self._tool_id(), "type": "function", "function": function}]
        end = {"logprobs": None, "finish_reason": _finish(answer), "stop_reason": None, "token_ids": None}
        use = shapes.whole_usage(True, len(PROMPT_IDS), made(answer), len(PROMPT_IDS) - 1)
        return json_reply(shapes.whole(head, [{"index": 0, "message": message, **end}], use, None, None))

    def _streamed(self, head: Head, answer: Text | ToolCall, body: Json) -> Script:
        deltas = (
            [{"content": piece} for piece in _pieces(answer.text)] if isinstance(answer, Text) else self._call(answer)
        )
        events = [shapes.chunk(head, [shapes.role(0)])]
        events += [_chunk(head, delta) for delta in deltas]
        events.append(_chunk(head, {"content": ""}, finish=_finish(answer)))
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append(shapes.chunk(head, [], usage=shapes.usage(len(PROMPT_IDS), made(answer))))
        return sse_reply(*events)

    def _call(self, call: ToolCall) -> list[Json]:
        first = {"id": self._tool_id(), "type": "function", "index": 0, "function": {"name": call.name}}
        rest = [{"index": 0, "function": {"arguments": piece}} for piece in _pieces(call.json)]
        return [{"tool_calls": [one]} for one in (first, *rest)]


def made(answer: Text | ToolCall) -> int:
    """The completion tokens that an answer's usage tells: one a streamed piece."""
    return len(_pieces(answer.text if isinstance(answer, Text) else answer.json))


def _has(body: Json, cue: str) -> bool:
    return any(cue in json.dumps(message.get("content"), ensure_ascii=False) for message in body["messages"])


def _pieces(text: str) -> list[str]:
    return [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]


def _finish(answer: Text | ToolCall) -> str:
    return "stop" if isinstance(answer, Text) else "tool_calls"


def _chunk(head: Head, delta: Json, finish: str | None = None) -> Json:
    end = {} if finish is None else {"stop_reason": None}
    return shapes.chunk(head, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **end}])


def _prefilled(head: Head) -> Script:
    n = len(PROMPT_IDS)
    kv = returned(engine="scripted", request=head.id, host="127.0.0.1", port=5600, tokens=n, blocks=[0], cached=0)
    message = {"role": "assistant", "content": ".", "tool_calls": []}
    choice = {"index": 0, "message": message, "finish_reason": "length", "stop_reason": None}
    return json_reply(shapes.whole(head, [choice], shapes.whole_usage(True, n, 1, 0), kv, PROMPT_IDS))


def _refused(refusal: Refusal) -> Script:
    type_ = "InternalServerError" if refusal.status >= 500 else "BadRequestError"
    reply = json_reply(shapes.error(refusal.message, refusal.status, type_=type_), refusal.status)
    if refusal.retry_after is None:
        return reply
    return Script(reply.parts, reply.status, {**reply.headers, "retry-after": f"{refusal.retry_after:g}"})
