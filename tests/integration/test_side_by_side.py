"""Two gateways behind nginx, one Redis: each knows what runs on the other, and what was not on one that is killed does
not notice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from common.ports import free_ports
from common.process import Child
from tests.awaiting import until
from tests.integration.balanced import LEASE, balancer, gateway, ready
from tests.integration.conftest import World
from tests.integration.test_replicas import gateway_pid
from tests.redis_server import keys_under

STREAMS = 200
CANCELLED_EACH = 5
TOKENS = 60
SLOW, FAST = 1.0, 0.02
"""Seconds between two tokens: slow while something is done to streams, so that none ends meanwhile."""
WITHIN = 60.0
"""Seconds for whatever is waited for."""


@dataclass
class Stream:
    """One answer as a client of the balancer sees it."""

    prompt: str
    id: str = ""
    text: str = ""
    done: bool = False
    fault: str | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: aiohttp.ClientSession, url: str) -> None:
        body = {"model": "sim", "prompt": self.prompt, "max_tokens": TOKENS, "stream": True}
        try:
            async with client.post(f"{url}/v1/completions", json=body) as reply:
                assert reply.status == 200, await reply.text()
                self.id = reply.headers["x-duet-request-id"]
                async for line in reply.content:
                    self._take(line.decode().strip())
        except aiohttp.ClientError as e:
            self.fault = repr(e)
        finally:
            self.begun.set()

    def _take(self, line: str) -> None:
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                self.fault = event["error"]["message"]
            for choice in event.get("choices", ()):
                self.text += choice["text"]
                self.begun.set()

    @property
    def whole(self) -> bool:
        return self.done and self.fault is None


@dataclass
class Deployment:
    world: World
    balanced: str
    ports: dict[str, int]
    children: dict[str, Child]
    client: aiohttp.ClientSession
    folder: Path

    async def admin(self, name: str, path: str, method: str = "GET") -> Any:
        url = f"http://127.0.0.1:{self.ports[name]}/admin/{path}"
        async with self.client.request(method, url) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def replica(self, name: str) -> str:
        return str((await self.admin(name, "topology"))["replica"])


@pytest.fixture
async def deployment(world: World, tmp_path: Path) -> AsyncIterator[Deployment]:
    await world.engines()
    ports = dict(zip(("one", "two"), free_ports(2), strict=True))
    async with AsyncExitStack() as stack:
        children = {name: stack.enter_context(gateway(world, name, port, tmp_path)) for name, port in ports.items()}
        for name, child in children.items():
            await ready(child, f"http://127.0.0.1:{ports[name]}")
        url = await stack.enter_async_context(balancer([f"127.0.0.1:{port}" for port in ports.values()], tmp_path))
        connector = aiohttp.TCPConnector(limit=0)
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Deployment(world, url, ports, children, client, tmp_path)


@pytest.mark.timeout(300)
async def test_one_of_two_gateways_is_killed_and_replaced(deployment: Deployment) -> None:
    d = deployment
    assert d.world.decode is not None
    engine = d.world.decode[0]
    engine.latency.between_tokens = SLOW
    streams = [Stream(f"stream number {i}") for i in range(STREAMS)]
    running = [asyncio.create_task(stream.run(d.client, d.balanced)) for stream in streams]
    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*(stream.begun.wait() for stream in streams))
    owned = await _owned(d, streams)
    assert min(len(mine) for mine in owned.values()) > STREAMS / 4, "the balancer gives to both"
    cancelled = await _cancel_through_the_other(d, owned)

    doomed = await d.replica("one")
    os.kill(gateway_pid(d.children["one"]), signal.SIGKILL)
    engine.latency.between_tokens = FAST
    with gateway(d.world, "three", d.ports["one"], d.folder) as successor:
        await asyncio.gather(*running)
        lost = [s for s in owned["one"] if s.id not in cancelled]
        kept = [s for s in owned["two"] if s.id not in cancelled]
        assert [s.prompt for s in kept if not s.whole] == [], "what was not on it is untouched"
        assert [s.prompt for s in lost if s.done and s.fault is None] == [], "and what was broke off"
        engine.latency.between_tokens = 0.0
        await ready(successor, f"http://127.0.0.1:{d.ports['one']}")
        await _right(d, kept[:: max(1, len(kept) // 10)])
        await _taken_by(d, "one")
        await _nothing_is_left(d, doomed, lost)


async def _owned(d: Deployment, streams: list[Stream]) -> dict[str, list[Stream]]:
    """Which gateway runs which; each is asked about all of them, its own and the other's."""
    names = {await d.replica(name): name for name in d.ports}
    owned: dict[str, list[Stream]] = {name: [] for name in d.ports}
    by_id = {stream.id: stream for stream in streams}
    for asked in d.ports:
        listed = (await d.admin(asked, f"requests?limit={STREAMS}"))["requests"]
        assert {one["id"] for one in listed} == set(by_id), "each sees all of them"
        assert {one["state"] for one in listed} == {"decoding"}
        owned = {name: [] for name in d.ports}
        for one in listed:
            owned[names[one["replica"]]].append(by_id[one["id"]])
    return owned


async def _cancel_through_the_other(d: Deployment, owned: dict[str, list[Stream]]) -> set[str]:
    """Some of each, inspected and ended through the gateway that does not run them."""
    ended: set[str] = set()
    for name, other in (("one", "two"), ("two", "one")):
        for stream in owned[name][:CANCELLED_EACH]:
            seen = await d.admin(other, f"requests/{stream.id}")
            assert seen["events"][0]["event"] == "admitted"
            assert seen["handoff"] is not None
            assert (await d.admin(other, f"requests/{stream.id}", "DELETE"))["state"] == "cancelled"
            ended.add(stream.id)
    return ended


async def _right(d: Deployment, streams: list[Stream]) -> None:
    """The same prompts again, whole: the same text."""
    for stream in streams:
        body = {"model": "sim", "prompt": stream.prompt, "max_tokens": TOKENS}
        assert (await _answer(d, body))["choices"][0]["text"] == stream.text


async def _taken_by(d: Deployment, name: str) -> None:
    """The gateway that replaced the one that was killed gets its share."""
    replica = await d.replica(name)

    async def gets() -> bool:
        id_ = (await _answer(d, {"model": "sim", "prompt": "again", "max_tokens": 1}))["request_id"]
        return bool((await d.admin("two", f"requests/{id_}"))["replica"] == replica)

    await until(gets, "a request through the balancer runs on it", within=WITHIN)


async def _answer(d: Deployment, body: dict[str, Any]) -> dict[str, Any]:
    """A whole answer, with its `request_id`; asked for again where a gateway has nobody to give the request to: to it,
    an engine on a machine that stood still is away."""

    async def answer() -> dict[str, Any] | None:
        async with d.client.post(f"{d.balanced}/v1/completions", json=body) as reply:
            if reply.status == 503:
                return None
            assert reply.status == 200, await reply.text()
            return {**await reply.json(), "request_id": reply.headers["x-duet-request-id"]}

    return await until(answer, "a request through the balancer is answered", within=WITHIN, every=0.1)


async def _nothing_is_left(d: Deployment, doomed: str, lost: list[Stream]) -> None:
    """Its requests end with its lease, and so does what it held of the engines' load."""

    async def closed() -> bool:
        states = [(await d.admin("two", f"requests/{stream.id}"))["state"] for stream in lost[:20]]
        return set(states) == {"expired"}

    await until(closed, "its requests are closed", within=WITHIN, every=LEASE / 4)

    async def idle() -> bool:
        return all(e["load"] == 0 for e in (await d.admin("two", "topology"))["engines"])

    await until(idle, "no engine is said to run any of them", within=WITHIN, every=0.1)
    async with Redis.from_url(d.world.redis_url, decode_responses=True) as redis:
        keys = await keys_under(redis, d.world.prefix)
        assert [key for key in keys if doomed in key] == []
        assert {key: ttl for key in keys if (ttl := await redis.pttl(key)) < 0} == {}
        (leases,) = [key for key in keys if "leases" in key]
        assert doomed not in await redis.zrange(leases, 0, -1)
