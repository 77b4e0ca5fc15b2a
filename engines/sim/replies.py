"""From an accepted request to its answer: whole, or event by event.

A stream's status and headers leave before any KV is there, as in vLLM: what goes wrong from then on is an error event
and `[DONE]` under status 200. A chat has its role chunk before that, a completion has nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from engines.sim import shapes, words
from engines.sim.answer import Answer, Delta, Prefilled
from engines.sim.ask import Ask
from engines.sim.calls import Call
from engines.sim.engine import GenerationFailed, SimEngine
from engines.sim.faults import Fault
from engines.sim.shapes import Head, Json

DONE = "data: [DONE]\n\n"


class BrokeOff(Exception):
    """The connection is to end here, without a word."""


async def whole(engine: SimEngine, head: Head, ask: Ask, call: Call, fault: Fault | None) -> Json:
    """Raises GenerationFailed."""
    prompts = await engine.prefill(ask)
    answers: dict[int, Answer] = {}
    async for answer, _ in engine.answer(ask, prompts):
        call.tokens += 1
        answers[answer.index] = answer
        await _slowed(fault)
    if _is(fault, "finish_error"):
        for answer in answers.values():
            answer.finish = "error"
    kv = engine.handoff(head.id, ask, prompts)
    if _is(fault, "null_handoff"):
        kv = None
    if fault is not None and fault.mode == "partial_handoff" and kv is not None:
        del kv[fault.without]
    made = [answers[index] for index in sorted(answers)]
    texts = [_echo(one) + one.text for one in made]
    cached = prompts[-1].cached if engine.details else None
    use = shapes.whole_usage(ask.chat, _prompt_tokens(prompts), call.tokens, cached)
    ids = list(prompts[0].tokens) if ask.return_token_ids else None
    return shapes.whole(head, [shapes.choice(a, t) for a, t in zip(made, texts, strict=True)], use, kv, ids)


async def stream(engine: SimEngine, head: Head, ask: Ask, call: Call, fault: Fault | None) -> AsyncIterator[str]:
    """Raises BrokeOff where the connection is to end early."""
    events = Events(head, ask, details=engine.details)
    try:
        prompts = await engine.prefill(ask)
    except GenerationFailed as e:
        for event in (*events.first(), _failure(e), DONE):
            yield event
        return
    for event in events.first():
        yield event
    try:
        async for answer, step in engine.answer(ask, prompts):
            await _midway(fault, call.tokens)
            await _slowed(fault)
            call.tokens += 1
            if _is(fault, "finish_error") and step.finish is not None:
                step = replace(step, finish="error")
            yield events.token(answer, step)
    except GenerationFailed as e:
        yield _failure(e)
    else:
        if ask.include_usage:
            yield events.last(prompts, call.tokens)
        if _is(fault, "no_done"):
            return
    yield DONE


class Events:
    """The events of one stream."""

    def __init__(self, head: Head, ask: Ask, *, details: bool) -> None:
        self._head = head
        self._ask = ask
        self._details = details
        self._seen: set[int] = set()

    def first(self) -> list[str]:
        """A chat's role chunks."""
        if not self._ask.chat:
            return []
        tokens = list(self._ask.prompts[0])
        ids = {"prompt_token_ids": tokens if self._ask.return_token_ids else None, "prompt_text": None}
        use = self._continuous(len(tokens), 0)
        return [_event(shapes.chunk(self._head, [shapes.role(i)], **use, **ids)) for i in range(self._ask.n)]

    def token(self, answer: Answer, step: Delta) -> str:
        is_first = answer.index not in self._seen
        self._seen.add(answer.index)
        text = (_echo(answer) if is_first else "") + step.text
        ids = list(answer.prompt.tokens) if is_first and self._ask.return_token_ids else None
        use = self._continuous(len(answer.prompt.tokens), len(answer.tokens))
        ends = step.finish is not None and not self._ask.include_usage
        more = {"system_fingerprint": shapes.FINGERPRINT} if ends else {}
        return _event(shapes.chunk(self._head, [shapes.delta(answer, step, text, ids)], **use, **more))

    def last(self, prompts: list[Prefilled], made: int) -> str:
        """The usage chunk."""
        use = shapes.usage(_prompt_tokens(prompts), made)
        if self._details:
            more = {"created_cache_tokens": 0} if self._ask.chat else {}
            use["prompt_tokens_details"] = {"cached_tokens": prompts[0].cached, **more}
        return _event(shapes.chunk(self._head, [], usage=use, system_fingerprint=shapes.FINGERPRINT))

    def _continuous(self, prompt: int, made: int) -> Json:
        if not self._ask.continuous_usage:
            return {}
        more = {"completion_tokens_details": None} if self._ask.chat else {}
        return {"usage": {**shapes.usage(prompt, made), **more}}


async def _midway(fault: Fault | None, made: int) -> None:
    """What happens after so many tokens."""
    if fault is None or made != fault.after:
        return
    if fault.mode == "drop_midway":
        raise BrokeOff
    if fault.mode == "hang_midway":
        await asyncio.Event().wait()
    if fault.mode == "error_event":
        raise GenerationFailed(fault.message)


async def _slowed(fault: Fault | None) -> None:
    if fault is not None and fault.mode == "slow":
        await asyncio.sleep(fault.seconds)


def _is(fault: Fault | None, mode: str) -> bool:
    return fault is not None and fault.mode == mode


def _echo(answer: Answer) -> str:
    return words.decode(answer.prompt.tokens) if answer.ask.echo else ""


def _prompt_tokens(prompts: list[Prefilled]) -> int:
    return sum(len(p.tokens) for p in prompts)


def _failure(error: GenerationFailed) -> str:
    return f"data: {json.dumps(shapes.failure(error.message, error.status))}\n\n"


def _event(body: Any) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"
