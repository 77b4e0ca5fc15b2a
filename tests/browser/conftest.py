"""A browser before a live deployment: two gateways, simulated engines, a real Redis or Valkey, keys on everything."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request, async_playwright

from cli.http import authorization
from engines.sim.engine import SimEngine
from tests.integration.conftest import Pair, World
from tests.redis_server import scratch_prefix

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CLIENT, ADMIN = "client-s3cret-7f", "admin-s3cret-9c"
WITHIN = 30_000
"""Milliseconds for what a page must show: a bound for a busy machine, not a promise."""
LAUNCHED_WITHIN = 90_000
"""Milliseconds for a browser to start."""
ANSWERED_WITHIN = 240
"""Seconds for an answer, and for each silence in it: longer than a test needs to click through a page."""


@dataclass
class Deployment:
    """`one` and `two` are replicas; `spare` is the second decode engine. Clients have their own key."""

    one: Pair
    two: Pair
    spare: SimEngine
    spare_url: str

    @property
    def engines(self) -> dict[str, str]:
        """Name -> id."""
        urls = {"prefill": self.one.prefill_url, "decode": self.one.decode_url, "spare": self.spare_url}
        return {name: url.removeprefix("http://") for name, url in urls.items()}

    async def chat(self, *, named: str | None = None, **fields: Any) -> str:
        """One request, to its end; its id. `named` is the client's own id for it."""
        headers = authorization(CLIENT) | ({} if named is None else {"x-request-id": named})
        body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, **fields}
        reply = await self.one.client.post("/v1/chat/completions", json=body, headers=headers, timeout=ANSWERED_WITHIN)
        return str(reply.headers["x-duet-request-id"])


@dataclass
class Seen:
    """What a page said and asked for while it was looked at."""

    errors: list[str] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", self._fault)
        page.on("request", self._request)

    def _fault(self, error: Error) -> None:
        self.errors.append(str(error))

    def _request(self, request: Request) -> None:
        self.asked.append(request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")


in_module = pytest_asyncio.fixture(loop_scope="module")
"""One event loop for a module, and so one browser: its start costs more than a test."""


@in_module
async def world(redis_url: str) -> AsyncIterator[World]:
    async with scratch_prefix(redis_url) as prefix, AsyncExitStack() as stack:
        yield World(stack, redis_url, prefix)


@in_module
async def deployment(world: World) -> Deployment:
    await world.engines()
    spare, url = await world.another()
    assert world.decode is not None
    options = {"decode": (world.decode[1], url), "api_key": (CLIENT,), "admin_key": ADMIN}
    options["idle_timeout"] = ANSWERED_WITHIN
    one, two = await world.gateway(**options), await world.gateway(**options)
    for engine in (one.prefill, one.decode, spare):
        engine.latency.per_prompt_token = 0.002
        engine.latency.between_tokens = 0.01
    for pair in (one, two):
        pair.client.headers.update(authorization(ADMIN))
    return Deployment(one, two, spare, url)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: Debian's package is `chromium`")
    async with async_playwright() as playwright:
        made = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=LAUNCHED_WITHIN
        )
        yield made
        await made.close()


@in_module
async def seen() -> AsyncIterator[Seen]:
    """Whatever a test does, the page says nothing on its console and asks nobody but its own gateway."""
    made = Seen()
    yield made
    assert made.errors == []
    assert {request.url.split("/")[2].split(":")[0] for request in made.asked} <= {"127.0.0.1"}
    for request in made.asked:
        assert "s3cret" not in request.url, "a key is never part of an address"


@in_module
async def page(browser: Browser, deployment: Deployment, seen: Seen) -> AsyncIterator[Page]:
    """The page of the first replica, with the admin's key entered by hand."""
    context = await browser.new_context(base_url=deployment.one.url)
    page = await context.new_page()
    page.set_default_timeout(WITHIN)
    seen.watch(page)
    await page.goto("/admin/ui")
    await page.get_by_label("Key").fill(ADMIN)
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Topology").wait_for()
    yield page
    await context.close()
