"""One engine's state: what it was asked, what it holds, and the tokens it makes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from engines.sim import words
from engines.sim.faults import Fault
from engines.sim.kv import KvShelf

BLOCK = 16


@dataclass(slots=True)
class Call:
    """One request as it came. `end` is `done`, `client left`, `broke off` or None while it runs."""

    path: str
    headers: dict[str, str]
    body: Any
    at: float
    end: str | None = None


@dataclass(slots=True)
class Latency:
    """Seconds: for each prompt token, and between two tokens."""

    per_prompt_token: float = 0.0
    between_tokens: float = 0.0


@dataclass(slots=True)
class Job:
    """One accepted request. `state` is the checksum after the prompt."""

    chat: bool
    id: str
    body: dict[str, Any]
    prompt: list[int]
    state: int
    limit: int
    cached: int


class SimRefused(Exception):
    """A request that vLLM refuses, in its words."""

    def __init__(self, status: int, message: str, type_: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.type, self.param = status, message, type_, param


@dataclass
class SimEngine:
    """`port` is where it serves: its handoffs name it. Set faults with `rule`, read what came in `calls`."""

    model: str = "sim"
    host: str = "127.0.0.1"
    port: int = 0
    max_model_len: int = 4096
    lease: float = 30.0
    latency: Latency = field(default_factory=Latency)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)
    """Prompt tokens by source, as vLLM's metric counts them."""
    running: int = 0
    id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.kv = KvShelf(self.lease)

    def rule(self, mode: Any, **fields: Any) -> None:
        self.faults.append(Fault(mode=mode, **fields))

    def fault(self) -> Fault | None:
        """The fault in force for a new request, which uses it up by one."""
        if not self.faults:
            return None
        first = self.faults[0]
        first.times -= 1
        if first.times <= 0:
            self.faults.pop(0)
        return first

    async def accept(self, chat: bool, id_: str, body: dict[str, Any]) -> Job:
        """Checks a request as vLLM does and computes its prompt. Raises SimRefused."""
        if body.get("model") != self.model:
            raise SimRefused(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError", "model")
        if body.get("stream_options") and not body.get("stream"):
            raise SimRefused(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
        kv = body.get("kv_transfer_params") or {}
        given = kv.pop("prompt_token_ids", None)
        prompt = given if given is not None and not body.get("echo") else words.render(body)
        limit = self._limit(chat, body, len(prompt))
        if self.latency.per_prompt_token:
            await asyncio.sleep(self.latency.per_prompt_token * len(prompt))
        state = await self._remote(kv, len(prompt)) if kv.get("do_remote_prefill") else None
        source = "local_compute" if state is None else "external_kv_transfer"
        self.sources[source] += len(prompt)
        state = words.absorb(0, prompt) if state is None else state
        return Job(chat, id_, body, prompt, state, limit, int(kv.get("remote_prefill_cached_tokens") or 0))

    async def tokens(self, job: Job) -> AsyncIterator[int]:
        state, seed = job.state, int(job.body.get("seed") or 0)
        for n in range(job.limit):
            if n and self.latency.between_tokens:
                await asyncio.sleep(self.latency.between_tokens)
            token = words.next_token(state, seed)
            state = words.absorb(state, [token])
            yield token

    def handoff(self, job: Job) -> dict[str, Any] | None:
        """What a NIXL producer returns (vLLM 0.32, `nixl/pull_scheduler.py`)."""
        if not (job.body.get("kv_transfer_params") or {}).get("do_remote_decode"):
            return None
        request_id = f"{job.id}-{uuid4().hex[:8]}"
        self.kv.put(request_id, len(job.prompt), job.state)
        blocks = -(-len(job.prompt) // BLOCK)
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(range(1, blocks + 1))],
            "remote_engine_id": self.id,
            "remote_request_id": request_id,
            "remote_host": self.host,
            "remote_port": self.port,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": len(job.prompt),
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": 0,
        }

    def _limit(self, chat: bool, body: dict[str, Any], prompt: int) -> int:
        room = self.max_model_len - prompt
        if room < 1:
            raise SimRefused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, your request has "
                f"{prompt} input tokens. Please reduce the length of the input messages.",
                param="input_tokens",
            )
        asked = body.get("max_completion_tokens") if chat else None
        asked = asked or body.get("max_tokens") or (room if chat else 16)
        if asked > room:
            raise SimRefused(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {asked} "
                f"output tokens and your prompt contains {prompt} input tokens.",
                param="max_tokens",
            )
        return int(asked)

    async def _remote(self, kv: dict[str, Any], prompt: int) -> int | None:
        """Fetches KV from where the handoff says. Dies, as vLLM does, where the handoff is not whole."""
        if kv["remote_num_tokens"] < prompt:
            raise AssertionError("the prompt is longer than what was prefilled")
        url = f"http://{kv['remote_host']}:{kv['remote_port']}/sim/kv/{kv['remote_request_id']}"
        async with httpx.AsyncClient(trust_env=False) as client:
            found = (await client.post(url)).json()
        return found["state"] if found is not None else None

    def record(self, path: str, headers: dict[str, str], body: Any) -> Call:
        call = Call(path, headers, body, time.time())
        self.calls.append(call)
        return call
