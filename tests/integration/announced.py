"""Engines that announce themselves: in a thread of the test, and by `duet register`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

from common.engine import Role
from common.registry import Announcement, Announcer
from tests.awaiting import until
from tests.integration.admin import engine
from tests.integration.conftest import Pair, World

SHOWS_WITHIN = 30.0
"""Seconds: a bound for a busy machine, not the promise."""


@asynccontextmanager
async def announced(
    world: World, url: str, role: Role, *, redis_url: str | None = None, **identity: Any
) -> AsyncIterator[Announcement]:
    """What `duet engine` does beside its server; leaving takes the announcement back."""
    said, stop = Announcement(url, role, uuid4().hex, 0.0, identity), Event()
    announcer = Announcer(redis_url or world.redis_url, said, prefix=world.prefix)
    running = asyncio.create_task(asyncio.to_thread(announcer.run, stop))
    try:
        yield said
    finally:
        stop.set()
        await running


@asynccontextmanager
async def registered(world: World, url: str, role: Role, folder: Path, *flags: str) -> AsyncIterator[Path]:
    """`duet register`, until SIGTERM; its log."""
    log = folder / f"register-{role.value}.log"
    command = [sys.executable, "-m", "cli.main", "register", "--url", url, "--role", role.value, *flags]
    env = {**os.environ, "DUET_REGISTRY_URL": world.redis_url, "DUET_REDIS_PREFIX": world.prefix}
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=env
        )
    try:
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), SHOWS_WITHIN)
    assert code == 0, log.read_text()


async def until_shown(pair: Pair, url: str, what: str, **fields: Any) -> dict[str, Any]:
    """The engine as soon as a replica shows it with these fields."""

    async def look() -> dict[str, Any] | None:
        found = await engine(pair, url.removeprefix("http://"))
        return found if found is not None and fields.items() <= found.items() else None

    return await until(look, f"{what}: {fields}", within=SHOWS_WITHIN)


async def until_not_shown(pair: Pair, url: str) -> None:
    async def look() -> bool:
        return await engine(pair, url.removeprefix("http://")) is None

    await until(look, f"engine {url} is gone", within=SHOWS_WITHIN)
