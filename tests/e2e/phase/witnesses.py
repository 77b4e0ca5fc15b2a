"""What is asked of engines that serve the witness, and what it wrote down in them.

| engine | what is special about it |
| --- | --- |
| `whole` | nothing is ever cut: the budget of a step is larger than any prompt; batched hooks; 32 requests at once |
| `chunked` | 64 tokens a step, so that a prompt of 65 ends in a row of one token; scalar hooks |
| `cramped` | a KV cache too small for what is asked: requests are preempted and start again |
| `prefill`, `decode` | a pair with NIXL |
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engines.witness.record import Frame, Row, read
from tests.real_engines import RealEngine, RealEngines

NAME = "witness"
BUDGET = 64
"""Tokens a step of the chunked engine."""

_IDS = itertools.count()
_VOCABULARY = (3, 1000)


@dataclass(frozen=True)
class Spoken:
    """One answer: its tokens, and all rows and frames of its request in the order in which the engine wrote them.
    `request` is a part of the engine's own id of it."""

    tokens: tuple[int, ...]
    events: tuple[Row | Frame, ...]
    request: str = ""

    @property
    def rows(self) -> list[Row]:
        return [event for event in self.events if isinstance(event, Row)]

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        return [row.shape for row in self.rows]

    @property
    def frames(self) -> list[tuple[int, ...]]:
        """The codes, in the order of their steps. Fails if a step was spoken twice, or one is missing: all sampled
        tokens but the last are fed, and each of those makes one frame."""
        spoken = [event for event in self.events if isinstance(event, Frame)]
        assert [frame.step for frame in spoken] == list(range(len(self.tokens) - 1))
        return [frame.codes for frame in spoken]

    @property
    def said(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """All that one run must have in common with another."""
        return self.tokens, self.frames


@dataclass(frozen=True)
class Step:
    """What is sure of one step in which frames were spoken: its rows from the first decode row on, and its frames."""

    rows: tuple[Row, ...]
    frames: tuple[Frame, ...]

    @property
    def mixed(self) -> bool:
        return not all(row.prefill == self.rows[0].prefill for row in self.rows)


@dataclass(frozen=True)
class Witness:
    """`record` is the model's own, `journal` the runner's (`engines/runner/journal.py`)."""

    engine: RealEngine
    record: Path
    journal: Path

    def events(self) -> list[Row | Frame]:
        return read(self.record) if self.record.exists() else []

    def scheduled(self, request: str) -> list[dict[str, Any]]:
        """The rows of the request whose engine-side id has this in it, as the scheduler made them: a row that is fed
        again reaches no hook, and is here all the same."""
        lines = map(json.loads, self.journal.read_text().splitlines())
        return [line for line in lines if line["event"] == "row" and request in line["request"]]

    def of(self, request: str) -> tuple[Row | Frame, ...]:
        """What was written about the request whose engine-side id has this in it."""
        return tuple(event for event in self.events() if request in event.request)

    async def say(self, prompts: Sequence[Sequence[int]], tokens: int, **asked: Any) -> list[Spoken]:
        """Asks for all of them in one call, so that they are in one batch. `asked` is added to the body."""
        request = f"witness-{next(_IDS)}"
        body = {**ask(prompts, tokens), **asked}
        async with httpx.AsyncClient(base_url=self.engine.url, timeout=300) as client:
            reply = await client.post("/v1/completions", json=body, headers={"X-Request-Id": request})
        assert reply.status_code == 200, reply.text
        choices = sorted(reply.json()["choices"], key=lambda choice: choice["index"])
        ids = [f"{request}-{choice['index']}-" for choice in choices]
        return [Spoken(tuple(c["token_ids"]), self.of(id), id) for c, id in zip(choices, ids, strict=True)]

    async def say_each(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Spoken]:
        """Asks for one after the other, so that each is alone."""
        return [(await self.say([prompt], tokens))[0] for prompt in prompts]

    async def metric(self, name: str) -> float:
        async with httpx.AsyncClient(base_url=self.engine.url, timeout=60) as client:
            lines = (await client.get("/metrics")).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


@dataclass(frozen=True)
class Witnesses:
    whole: Witness
    chunked: Witness
    cramped: Witness
    prefill: Witness
    decode: Witness

    @property
    def split(self) -> RealEngines:
        """As a gateway is told of them."""
        return RealEngines(NAME, self.prefill.engine, self.decode.engine, self.whole.engine)


def ask(prompts: Sequence[Sequence[int]] | Sequence[int], tokens: int) -> dict[str, Any]:
    """A body for `/v1/completions`: greedy, exactly so many tokens, with their ids."""
    return {
        "model": NAME,
        "prompt": prompts,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


def prompt_of(length: int, salt: int = 0) -> list[int]:
    rng = random.Random(salt * 10_000 + length)
    return [rng.randrange(*_VOCABULARY) for _ in range(length)]


def largest_batch(events: Sequence[Row | Frame]) -> int:
    """The most frames that came out of one call of the MTP: an engine writes them one after the other."""
    runs = itertools.groupby(events, key=lambda event: isinstance(event, Frame))
    return max((len(list(run)) for spoken, run in runs if spoken), default=0)


def spoken_steps(events: Sequence[Row | Frame]) -> list[Step]:
    """The steps of an engine with scalar hooks in which something was spoken.

    A step's rows are written before its frames, and each of its decode rows has one. So a frame ends the step of all
    rows since the last decode row that has none yet; prefill rows before those may be from steps without a frame.
    """
    steps, rows, frames = [], [], []
    for event in (*events, None):
        if frames and not isinstance(event, Frame):
            steps.append(Step(tuple(rows), tuple(frames)))
            rows, frames = [], []
        if isinstance(event, Frame):
            frames.append(event)
        elif event is not None and (rows or not event.prefill):
            rows.append(event)
    return steps


async def say_at_once(witness: Witness, prompts: Sequence[Sequence[int]], tokens: int) -> list[Spoken]:
    """Asks in calls of their own at the same time: they come and go in the batch at different steps."""
    answers = await asyncio.gather(*(witness.say([prompt], tokens) for prompt in prompts))
    return [answer for (answer,) in answers]
