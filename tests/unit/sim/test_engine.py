"""One simulated engine behind its port: what it shares with vLLM is in `tests/contract/engine/`, the rest is here."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from common.ports import free_ports
from engines.sim.calls import Call
from engines.sim.engine import Latency, SimEngine
from engines.sim.runner import running

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENOUGH = 60.0
"""Seconds: no test comes near it unless something hangs."""
SILENT_FOR = 0.1
"""Seconds without an answer."""
Json = dict[str, Any]


class At:
    """An engine and a client for it."""

    def __init__(self, engine: SimEngine, client: httpx.AsyncClient) -> None:
        self.engine = engine
        self.client = client

    async def ask(self, prompt: Any = "some words", **fields: Any) -> httpx.Response:
        return await self.client.post(TEXT, json={"prompt": prompt, "max_tokens": 4, **fields})

    async def tokens(self, prompt: Any = "some words", **fields: Any) -> list[int]:
        reply = await self.ask(prompt, return_token_ids=True, **fields)
        found: list[int] = reply.json()["choices"][0]["token_ids"]
        return found

    async def handoff(self, prompt: Any = "some words") -> Json:
        reply = await self.ask(prompt, max_tokens=1, kv_transfer_params={"do_remote_decode": True})
        found: Json = reply.json()["kv_transfer_params"]
        return found


@asynccontextmanager
async def at(engine: SimEngine) -> AsyncIterator[At]:
    async with running(engine) as url, httpx.AsyncClient(base_url=url, verify=False, timeout=ENOUGH) as client:
        yield At(engine, client)


@pytest.fixture
async def sim() -> AsyncIterator[At]:
    async with at(SimEngine()) as made:
        yield made


@pytest.fixture
async def pair() -> AsyncIterator[tuple[At, At]]:
    """Prefill and decode."""
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(at(SimEngine(lease=30))),
            await stack.enter_async_context(at(SimEngine())),
        )


async def leave_unanswered(at: At, **body: Any) -> None:
    """Asks, has no answer for a while, and leaves."""
    asking = asyncio.create_task(at.client.post(TEXT, json=body))
    async with asyncio.timeout(ENOUGH):
        while not at.engine.calls:  # noqa: ASYNC110 - it is set when a request is read
            await asyncio.sleep(0.005)
    assert await asyncio.wait({asking}, timeout=SILENT_FOR) == (set(), {asking})
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await ended(at.engine.calls[0]) == "client left"


async def ended(call: Call) -> str:
    async with asyncio.timeout(ENOUGH):
        while call.end is None:  # noqa: ASYNC110 - it ends when a socket does
            await asyncio.sleep(0.005)
    return call.end


async def until_it_breaks(reply: httpx.Response) -> bytes:
    """What comes before the connection ends too early; an AssertionError if it does not."""
    got = b""
    try:
        async for piece in reply.aiter_raw():
            got += piece
    except httpx.RemoteProtocolError:
        return got
    raise AssertionError(f"a whole reply came: {got!r}")


class TestHandoffs:
    """As on real engines, nothing says that a handoff was wrong: the tokens do."""

    async def test_the_right_one_gives_the_right_tokens(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        right = await decode.tokens()
        assert await decode.tokens(kv_transfer_params=await prefill.handoff()) == right
        assert decode.engine.sources == {"local_compute": 10, "external_kv_transfer": 10}
        assert (prefill.engine.kv.fetched, prefill.engine.kv.held) == (1, {})

    async def test_a_second_use_gives_wrong_ones(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        handoff = await prefill.handoff()
        right = await decode.tokens(kv_transfer_params=handoff)
        assert await decode.tokens(kv_transfer_params=handoff) != right

    async def test_another_prompts_gives_wrong_ones(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        assert await decode.tokens("some worms", kv_transfer_params=await prefill.handoff()) == await decode.tokens()

    async def test_one_whose_lease_is_over_gives_wrong_ones(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        prefill.engine.kv.lease = 0
        handoff = await prefill.handoff()
        assert await decode.tokens(kv_transfer_params=handoff) != await decode.tokens()
        assert prefill.engine.kv.expired == 1

    @pytest.mark.parametrize("until_fetched", [30.0, 0.0], ids=["before", "within"])
    async def test_a_client_that_leaves_before_its_kv_has_come_leaves_none_behind(
        self, pair: tuple[At, At], until_fetched: float
    ) -> None:
        """As in vLLM, whether the fetch has begun or not."""
        prefill, decode = pair
        decode.engine.latency = Latency(per_fetched_token=30.0, until_fetched=until_fetched)
        ask = {"prompt": "some words", "max_tokens": 4, "stream": True, "kv_transfer_params": await prefill.handoff()}
        async with decode.client.stream("POST", TEXT, json=ask):
            async with asyncio.timeout(ENOUGH):
                while not decode.engine.running:  # noqa: ASYNC110 - it is when the headers are gone
                    await asyncio.sleep(0.005)
        assert await ended(decode.engine.calls[0]) == "client left"
        async with asyncio.timeout(ENOUGH):
            while prefill.engine.kv.held:  # noqa: ASYNC110 - it ends when the other engine has called
                await asyncio.sleep(0.005)
        assert prefill.engine.kv.fetched + prefill.engine.kv.released == 1

    async def test_a_list_of_prompts_loads_the_first_ones_for_all(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        prompts = ["some words", "some worms"]
        handoff = await prefill.handoff(prompts)
        reply = await decode.ask(prompts, kv_transfer_params=handoff, return_token_ids=True)
        first, second = (choice["token_ids"] for choice in reply.json()["choices"])
        assert first == await decode.tokens("some words")
        assert second != await decode.tokens("some worms")

    async def test_one_without_blocks_kills_the_engine(self, sim: At) -> None:
        reply = await sim.ask(kv_transfer_params={"do_remote_prefill": True})
        assert reply.status_code == 500
        assert reply.json()["error"]["message"].startswith("EngineCore encountered an issue.")
        assert (await sim.client.get("/health")).status_code == 503
        assert (await sim.ask()).status_code == 500

    async def test_one_without_an_address_hangs(self, sim: At) -> None:
        handoff = {"do_remote_prefill": True, "remote_block_ids": [[1]]}
        await leave_unanswered(sim, prompt="x", kv_transfer_params=handoff)

    async def test_kv_that_cannot_be_fetched_can_be_computed_again(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        nobody = {**await prefill.handoff(), "remote_port": 1}
        assert (await decode.ask(kv_transfer_params=nobody)).status_code == 500
        decode.engine.recompute = True
        assert await decode.tokens(kv_transfer_params=nobody) == await decode.tokens()
        assert decode.engine.sources == {"local_compute": 20}
        assert decode.engine.failed_transfers == 2

    async def test_a_refused_decode_frees_what_prefill_held(self, pair: tuple[At, At]) -> None:
        prefill, decode = pair
        handoff = await prefill.handoff()
        assert (await decode.ask(n=0, kv_transfer_params=handoff)).status_code == 400
        assert (prefill.engine.kv.held, prefill.engine.kv.released) == ({}, 1)

    async def test_a_prefill_that_nobody_waits_for_holds_nothing(self) -> None:
        async with at(SimEngine(latency=Latency(per_prompt_token=1))) as prefill:
            await leave_unanswered(prefill, prompt="some words", kv_transfer_params={"do_remote_decode": True})
            assert (prefill.engine.kv.held, prefill.engine.running) == ({}, 0)


class TestFaults:
    async def test_a_status(self, sim: At) -> None:
        sim.engine.rule("status", status=503, message="busy")
        reply = await sim.ask()
        assert (reply.status_code, reply.json()["error"]["message"]) == (503, "busy")
        assert (await sim.ask()).status_code == 200, "it is used up"

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_connection_that_drops(self, sim: At, stream: bool) -> None:
        sim.engine.rule("drop")
        with pytest.raises(httpx.RemoteProtocolError):
            await sim.ask(stream=stream)
        assert sim.engine.calls[0].end == "broke off"
        assert (await sim.ask()).status_code == 200

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_connection_that_drops_midway(self, sim: At, stream: bool) -> None:
        sim.engine.rule("drop_midway", after=2)
        async with sim.client.stream("POST", TEXT, json={"prompt": "x", "stream": stream}) as reply:
            assert reply.status_code == 200
            got = await until_it_breaks(reply)
        assert got.startswith(b"data: " if stream else b'{"id"')
        assert got.count(b"data: ") == (2 if stream else 0)
        assert sim.engine.calls[0].end == "broke off"

    @pytest.mark.parametrize(("mode", "stream"), [("hang", False), ("hang", True), ("hang_midway", True)])
    async def test_a_silence_that_ends_with_the_client(self, sim: At, mode: str, stream: bool) -> None:
        sim.engine.rule(mode, after=1)
        await leave_unanswered(sim, prompt="x", stream=stream)
        assert sim.engine.running == 0

    async def test_an_error_event(self, sim: At) -> None:
        sim.engine.rule("error_event", after=1, message="lost")
        reply = await sim.ask(stream=True)
        assert reply.status_code == 200
        assert '"message": "lost"' in reply.text.split("\n\n")[1]
        assert reply.text.endswith("data: [DONE]\n\n")

    async def test_a_stream_without_an_end(self, sim: At) -> None:
        sim.engine.rule("no_done")
        reply = await sim.ask(stream=True)
        assert reply.text.count('"finish_reason":"length"') == 1
        assert "[DONE]" not in reply.text

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_finish_that_is_an_error(self, sim: At, stream: bool) -> None:
        sim.engine.rule("finish_error")
        assert '"finish_reason":"error"' in (await sim.ask(stream=stream)).text

    async def test_handoffs_that_are_not_whole(self, sim: At) -> None:
        sim.engine.rule("null_handoff")
        assert await sim.handoff() is None
        sim.engine.rule("partial_handoff", without="remote_port")
        partial = await sim.handoff()
        assert set(await sim.handoff()) - set(partial) == {"remote_port"}

    async def test_slowness(self, sim: At) -> None:
        sim.engine.rule("slow", seconds=60)
        async with sim.client.stream("POST", TEXT, json={"prompt": "x", "stream": True}) as reply:
            assert reply.status_code == 200, "it takes the request"
        assert await ended(sim.engine.calls[0]) == "client left"
        assert sim.engine.calls[0].tokens < 16

    async def test_health(self, sim: At) -> None:
        sim.engine.rule("status", on="health", status=500)
        sim.engine.rule("drop", on="health")
        assert (await sim.ask()).status_code == 200
        assert (await sim.client.get("/health")).status_code == 500
        with pytest.raises(httpx.RemoteProtocolError):
            await sim.client.get("/health")
        assert (await sim.client.get("/health")).status_code == 200

    async def test_faults_can_be_set_from_outside(self, sim: At) -> None:
        assert (await sim.client.post("/sim/faults", json={"mode": "status", "on": "decode"})).status_code == 200
        refused = await sim.client.post("/sim/faults", json={"mode": "nothing"})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "BadRequestError")
        assert [fault["mode"] for fault in (await sim.client.get("/sim/faults")).json()] == ["status"]
        assert (await sim.client.delete("/sim/faults")).json() == []
        assert not sim.engine.faults


async def test_calls_can_be_read_from_outside(sim: At) -> None:
    await sim.ask(stream=True)
    await sim.client.post(CHAT, content=b"{", headers={"x-request-id": "r-1-prefill"})
    first, second = (await sim.client.get("/sim/calls")).json()
    assert (first["method"], first["path"], first["body"]["stream"], first["leg"]) == ("POST", TEXT, True, "unsplit")
    assert (first["status"], first["tokens"], first["end"]) == (200, 4, "done")
    assert first["at"] <= first["ended_at"]
    assert (second["status"], second["body"], second["end"]) == (400, None, "done")
    assert second["headers"]["x-request-id"] == "r-1-prefill"


async def test_a_key_is_wanted_where_vllm_wants_it() -> None:
    async with at(SimEngine(api_key="k")) as sim:
        assert (await sim.ask()).json() == {"error": "Unauthorized"}
        assert [(await sim.client.get(path)).status_code for path in ("/health", "/metrics", "/v1/models")] == [
            *(200, 200, 401)
        ]
        sim.client.headers["authorization"] = "Bearer k"
        assert (await sim.ask()).status_code == 200
        assert [call.status for call in sim.engine.calls] == [401, 200]


async def test_answers_end_by_themselves_if_they_may() -> None:
    async with at(SimEngine(end_every=5)) as sim:
        finishes = {(await sim.ask(str(n), max_tokens=50)).json()["choices"][0]["finish_reason"] for n in range(5)}
        assert finishes == {"stop"}


async def test_leaving_does_not_wait_for_what_hangs() -> None:
    async with asyncio.timeout(ENOUGH):
        async with at(SimEngine()) as sim:
            sim.engine.rule("hang")
            task = asyncio.ensure_future(sim.ask())
            while not sim.engine.calls:  # noqa: ASYNC110 - a socket is in between
                await asyncio.sleep(0.005)
        with pytest.raises(httpx.HTTPError):
            await task
    assert sim.engine.calls[0].end == "client left"


def test_it_runs_by_itself() -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "engines.sim", "--port", str(port), "--model", "mine"]
    with subprocess.Popen(command) as process:
        try:
            transport = httpx.HTTPTransport(retries=8)  # tries again while nobody listens, a little later each time
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=transport) as client:
                assert client.get("/v1/models").json()["data"][0]["id"] == "mine"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(ENOUGH) == -signal.SIGTERM


PRODUCE = {"do_remote_decode": True, "do_remote_prefill": False}


async def test_without_a_connector_it_neither_hands_over_nor_takes() -> None:
    engine = SimEngine(splits=False)
    async with running(engine) as url, httpx.AsyncClient(base_url=url) as client:
        at = At(engine, client)
        whole = await at.tokens("words")
        handed = await at.ask("words", kv_transfer_params=PRODUCE)
        assert handed.json()["kv_transfer_params"] is None
        assert await at.tokens("words", kv_transfer_params={"do_remote_prefill": True}) == whole
    assert not engine.dead
    assert engine.sources == {"local_compute": 3 * len("words")}


async def test_usage_without_details() -> None:
    engine = SimEngine(details=False)
    async with running(engine) as url, httpx.AsyncClient(base_url=url) as client:
        at = At(engine, client)
        assert (await at.ask()).json()["usage"]["prompt_tokens_details"] is None
        streamed = (await at.ask(stream=True, stream_options={"include_usage": True})).text
    assert '"usage":{"prompt_tokens":' in streamed
    assert "prompt_tokens_details" not in streamed


async def test_a_tokenizer_of_its_own() -> None:
    async def prompt_ids(rotated: int, prompt: Any) -> list[int]:
        engine = SimEngine(rotated=rotated)
        async with running(engine) as url, httpx.AsyncClient(base_url=url) as client:
            reply = await At(engine, client).ask(prompt, return_token_ids=True)
        found: list[int] = reply.json()["choices"][0]["prompt_token_ids"]
        return found

    assert await prompt_ids(1, "az") == [one + 1 for one in await prompt_ids(0, "az")]
    assert await prompt_ids(1, [7, 8]) == [7, 8]
