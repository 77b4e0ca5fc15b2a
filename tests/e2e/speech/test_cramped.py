"""Engines without room: prompts come in chunks, most with a tail of one token, and requests are preempted.

That they are is no chance. All requests of a test are held at a point where together they have every KV block of the
engine, and each needs one more to come to its end: whichever goes on first finds none.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.channel import Publisher
from common.channel.reference import Key
from common.conditioning import STAGE
from common.engine import Role
from engines.thinker.launch import CPU_MAX_NUM_SEQS
from tests.awaiting import until
from tests.contract.talker.oracle import FRAMES, Case
from tests.e2e.speech.asking import GREEDY, answer, codes_of, speaking
from tests.e2e.speech.chain import chain_over, expect_transformers_own
from tests.e2e.speech.stages import Stage, Stages, talker, thinker
from tests.e2e.speech.telling import prompt_rows, tell
from tests.real_engines import RealEngine, meet, wait_for

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

BLOCK = 32
"""Tokens of a KV block."""
TOLD = 2
"""Text tokens that each Talker request is given before it is held. It has one frame then."""
TALKERS = 16
"""Speeches that are held at once."""
TEXTS = 6
"""Answers of a hundred tokens that are decoded at once. Alone each needs four blocks in the end."""
WITHIN = 120.0


@dataclass(frozen=True)
class Cramped:
    """`tails` are the cases whose prompt, of the Thinker or of the Talker, ends with a chunk of one token if it is
    computed alone. `held` are those that the Talker has room for while all of them are held, and not after; `rows` is
    its record of what it computed."""

    prefill: Stage
    decode: Stage
    talker: Stage
    tails: list[Case]
    held: list[Case]
    rows: Path

    def computed(self) -> list[dict[str, Any]]:
        return [row for line in self.rows.read_text().splitlines() if (row := json.loads(line))["event"] == "row"]


@pytest.fixture(scope="module")
def cramped(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cramped]:
    root = tmp_path_factory.mktemp("cramped")
    log = root / "rows.jsonl"
    prompts, spoken = [len(case.prompt) for case in stages.oracle], _talker_lengths(stages)
    size, spoken_size = _chunk(prompts), _chunk(spoken)
    pairs = zip(stages.oracle, prompts, spoken, strict=True)
    tails = [case for case, prompt, length in pairs if prompt % size == 1 or length % spoken_size == 1]
    grow = [at for at, length in enumerate(spoken) if _grows(length) and len(stages.oracle[at].said) > TOLD + 1]
    held = [grow[at % len(grow)] for at in range(TALKERS)]
    room = sum(_blocks(spoken[at] + TOLD - 1) for at in held)
    with ExitStack() as stack:
        prefill = thinker(stack, stages.omni, Role.PREFILL, root, "--max-num-batched-tokens", str(size))
        decode = thinker(stack, stages.omni, Role.DECODE, root, *_room(TEXTS, 192), VLLM_SERVER_DEV_MODE="1")
        flags = ("--max-num-batched-tokens", str(spoken_size), *_room(room, 512))
        talking = talker(stack, stages.talker_model, root, *flags, DUET_PHASE_LOG=str(log))
        wait_for(prefill.engine, decode.engine, talking.engine)
        meet(prefill.engine, stages.decode.engine)
        meet(stages.prefill.engine, decode.engine)
        yield Cramped(prefill, decode, talking, tails, [stages.oracle[at] for at in held], log)
        for stage in (prefill, decode, talking):
            stage.engine.child.ask_to_stop()


def _room(blocks: int, length: int) -> tuple[str, ...]:
    """vLLM keeps one block for itself."""
    return ("--num-gpu-blocks-override", str(blocks + 1), "--max-model-len", str(length))


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)


def _grows(length: int) -> bool:
    """Whether a Talker's prompt of that length needs another block after it was held."""
    return _blocks(length + FRAMES) > _blocks(length + TOLD - 1)


def _chunk(lengths: Sequence[int]) -> int:
    """Tokens of a step: so many that most prompts of these lengths end with a chunk of one, if they are computed alone.
    Of the requests that may run at once each can have a token of it."""
    return max(range(CPU_MAX_NUM_SEQS, 33), key=lambda size: sum(length % size == 1 < length for length in lengths))


def _talker_lengths(stages: Stages) -> list[int]:
    from engines.talker.config import TalkerConfig, marks_of
    from engines.talker.script import Script

    marks = marks_of(TalkerConfig.from_pretrained(stages.talker_model))
    return [Script.of(case.prompt, marks).length for case in stages.oracle]


async def preemptions(engine: RealEngine) -> float:
    async with httpx.AsyncClient(timeout=60) as client:
        lines = (await client.get(f"{engine.url}/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_preemptions_total{"))


async def test_chunks_and_tails_change_nothing(stages: Stages, cramped: Cramped, redis_url: str) -> None:
    """Those that end with a chunk of one token alone, so that they do; then sixteen at once."""
    chain_of = chain_over(redis_url, cramped.prefill, stages.decode, cramped.talker, [stages.code2wav])
    async with chain_of as chain:
        alone = [await chain.say(case) for case in cramped.tails]
        cases = [*stages.oracle, *stages.oracle[2:8]]
        answers = await asyncio.gather(*(chain.say(case) for case in cases))
    expect_transformers_own(stages, alone, cramped.tails)
    expect_transformers_own(stages, answers, cases)
    assert any(got.prompt_steps[-1] == 1 and len(got.prompt_steps) > 1 for got in alone)
    tails = [row for row in cramped.computed() if row["span"] == 1 and row["computed"] == row["prompt_len"] - 1 > 0]
    assert tails
    assert all(row["is_prefill"] and not row["mtp"] for row in tails)


async def test_a_preempted_talker_speaks_the_same(cramped: Cramped) -> None:
    talking, before = cramped.talker, await preemptions(cramped.talker.engine)
    with Publisher() as thinker:
        keys = [Key(f"held-{at}", STAGE) for at in range(len(cramped.held))]
        all_held, go_on = asyncio.Barrier(len(keys) + 1), asyncio.Event()

        async def speak(key: Key, case: Case) -> list[list[int]]:
            thinker.publish(key, prompt_rows(case))
            tell(thinker, key, case, 0, TOLD)
            body = {"request_id": key.request, "conditioning": [str(thinker.reference(key))], **GREEDY}
            async with speaking(talking, body) as events:
                async for event in events:
                    if event == {"type": "frames", "frames": TOLD - 1}:
                        await all_held.wait()
                        await go_on.wait()
            assert event["type"] == "done", event
            return await codes_of(talking.stream(key.request, "talker"))

        spoken = [asyncio.create_task(speak(key, case)) for key, case in zip(keys, cramped.held, strict=True)]
        async with asyncio.timeout(WITHIN):
            await all_held.wait()
        assert await preemptions(talking.engine) == before, "all of them have room while they are held"
        for key, case in zip(keys, cramped.held, strict=True):
            tell(thinker, key, case, TOLD)
            thinker.close(key)
        go_on.set()
        codes = await asyncio.gather(*spoken)
    assert codes == [case.codes for case in cramped.held]
    assert await preemptions(talking.engine) > before
    assert any(row["replayed"] for row in cramped.computed())


async def test_a_preempted_decode_says_and_tells_the_same(stages: Stages, cramped: Cramped) -> None:
    """Held by vLLM's own pause: all requests are in its queue before the first of them is loaded."""
    decode = cramped.decode.engine
    cases = [stages.long[at % len(stages.long)] for at in range(TEXTS)]
    within = replace(stages, decode=cramped.decode)
    async with _paused(decode):
        taken = decode.log().count("Added request")
        asked = [asyncio.create_task(answer(within, case, f"long-{at}")) for at, case in enumerate(cases)]

        async def all_wait() -> bool:
            return decode.log().count("Added request") == taken + TEXTS

        await until(all_wait, "decode has all requests", within=WITHIN, every=0.1)
    answers = await asyncio.gather(*asked)
    assert await preemptions(decode) > 0
    for case, got in zip(cases, answers, strict=True):
        assert (got.prompt, got.said, got.codes) == (case.prompt, case.said, case.codes)


@asynccontextmanager
async def _paused(engine: RealEngine) -> AsyncIterator[None]:
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        (await client.post("/pause", params={"mode": "keep"})).raise_for_status()
        try:
            yield
        finally:
            (await client.post("/resume")).raise_for_status()
