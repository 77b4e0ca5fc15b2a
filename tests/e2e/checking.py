"""How a split is held against an unsplit engine, token by token."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from common.connectors import Connector, connector
from common.connectors.base import Handoff, HandoffContext
from tests.e2e.conftest import Real
from tests.e2e.prompts import Ask
from tests.sse import events_of

SALTS = itertools.count(1)
"""What makes a prompt another one than all before it. The same in every run: no two processes share engines."""
CLOSE = 1e-4
"""Between two log-probabilities that are the same: their last bits depend on the batch."""


@dataclass(frozen=True)
class Seen:
    """What one answer was: its tokens, why it ended, its prompt's length, and the times of its events."""

    tokens: tuple[int, ...]
    finish: str
    prompt_tokens: int
    ttft: float
    gaps: tuple[float, ...]


async def answer(client: httpx.AsyncClient, ask: Ask, model: str) -> Seen:
    """Streams one answer."""
    body = {
        **ask.body,
        "model": model,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    start = time.perf_counter()
    times: list[float] = []
    text = ""
    async with client.stream("POST", ask.path, json=body) as reply:
        assert reply.status_code == 200, (await reply.aread()).decode()
        async for piece in reply.aiter_text():
            times.append(time.perf_counter())
            text += piece
    events = events_of(text)
    choices = [choice for event in events for choice in event["choices"]]
    return Seen(
        tokens=tuple(token for choice in choices for token in choice.get("token_ids") or ()),
        finish=next(choice["finish_reason"] for choice in reversed(choices) if choice["finish_reason"]),
        prompt_tokens=events[-1]["usage"]["prompt_tokens"],
        ttft=times[0] - start,
        gaps=tuple(b - a for a, b in itertools.pairwise(times)),
    )


def all_from_prefill(prompt_tokens: int) -> Mapping[str, float]:
    """What decode's counters must grow by.

    vLLM computes a prompt's last token again in any case, since that is where its first answer token comes from, and
    counts it with the rest. If it is the only one, no computed token is left after the load, and vLLM 0.32 looks the
    request up as a new one (`v1/core/sched/scheduler.py`): the KV came, and the counter says `local_compute`.
    """
    local = 1 if prompt_tokens == 1 else 0
    return {"local_compute": local, "local_cache_hit": 0, "external_kv_transfer": prompt_tokens - local}


async def check_split_equals_unsplit(
    real: Real, asked: Sequence[Ask], expected: Callable[[int], Mapping[str, float]] = all_from_prefill
) -> Mapping[str, list[Seen]]:
    """Asserts, for every ask: the same tokens and ending; and that decode took its prompt tokens from where
    `expected` says for a prompt of so many, by vLLM's own counters."""
    split, whole, computed = [], [], {}
    for ask in asked:
        before = await real.sources()
        split.append(await answer(real.client, ask, real.engines.model))
        after = await real.sources()
        whole.append(await answer(real.whole, ask, real.engines.model))
        grown = {source: after[source] - before[source] for source in after}
        if grown != expected(split[-1].prompt_tokens):
            computed[ask.name] = grown
    for ask, a, b in zip(asked, split, whole, strict=True):
        assert (a.tokens, a.finish) == (b.tokens, b.finish), ask.name
        assert a.prompt_tokens == b.prompt_tokens, ask.name
        assert len(a.tokens) > 0, ask.name
    assert not computed, f"prompt tokens that did not come from where they should, by source: {computed}"
    return {"split": split, "unsplit": whole}


def dropping(name: str) -> Connector:
    """That connector, losing every handoff on its way to decode."""

    class Dropping(type(connector(name))):  # type: ignore[misc]
        def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> None:
            return None

    return Dropping()


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """An answer without what differs between any two answers, and between two engines' caches."""
    text = json.dumps({k: v for k, v in body.items() if k not in ("id", "created", "system_fingerprint")})
    kept = json.loads(text)
    kept.pop("kv_transfer_params", None)
    kept.pop("ec_transfer_params", None)
    kept["usage"].pop("prompt_tokens_details", None)
    for choice in kept["choices"] if isinstance(kept["choices"], list) else kept["choices"].values():
        for call in (choice.get("message") or choice).get("tool_calls") or ():
            call.pop("id", None)
    return tolerant(kept)


class Near(float):
    """Equal to every number that is CLOSE to it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=0, abs_tol=CLOSE)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def tolerant(value: Any) -> Any:
    """With log-probabilities that are equal to others CLOSE to them."""
    if isinstance(value, float):
        return Near(value)
    if isinstance(value, dict):
        return {k: tolerant(v) for k, v in value.items()}
    return [tolerant(v) for v in value] if isinstance(value, list) else value
