"""The command itself: that it serves, how it ends, and what it prints."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from common.ports import free_ports
from tests.awaiting import until
from tests.contract.code2wav.conftest import Codes, made_up
from tests.contract.code2wav.hearing import CLOSE, ask, counted

ROOT = Path(__file__).parents[3]
LOADS_WITHIN = 240.0
"""Seconds: torch is imported and a model loaded, on a machine that is busy with other things."""

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Command:
    child: asyncio.subprocess.Process
    client: httpx.AsyncClient
    log: Path

    async def printed(self) -> list[str]:
        """Asks it to stop, and gives all lines that it printed."""
        self.child.send_signal(signal.SIGTERM)
        assert await self.child.wait() == 0
        return self.log.read_text().splitlines()


@asynccontextmanager
async def command(omni: Path, log: Path, *flags: str) -> AsyncIterator[Command]:
    (port,) = free_ports(1)
    args = [sys.executable, "-m", "engines.code2wav", str(omni), "--port", str(port), *flags]
    with log.open("wb") as err:
        child = await asyncio.create_subprocess_exec(
            *args, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=err, stderr=err
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

            async def up() -> bool:
                try:
                    return (await client.get("/health")).status_code == 200
                except httpx.ConnectError:
                    return False

            await until(up, "the command serves", within=LOADS_WITHIN, every=0.1)
            yield Command(child, client, log)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_and_ends_when_told(omni: Path, tmp_path: Path, codes: Codes, whole: Any, sig: int) -> None:
    async with command(omni, tmp_path / "log", "--first-chunk", "2", "--served-name", "heard") as it:
        said = made_up(7)
        codes.put("r", said)
        codes.end("r")
        assert np.abs(await ask(it.client, codes.reference("r")) - whole(said)).max() < CLOSE
        identity = (await it.client.get("/duet/identity")).json()
        assert (identity["stage"], identity["model"]) == ("code2wav", "heard")
        it.child.send_signal(sig)
        assert await it.child.wait() == 0
        assert it.log.read_text() == ""


async def test_an_answer_that_breaks_off_is_one_line(omni: Path, tmp_path: Path, codes: Codes) -> None:
    async with command(omni, tmp_path / "log") as it:
        codes.put("r", made_up(6))
        codes.end("r", "the Talker died")
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            await ask(it.client, codes.reference("r"))
        [line] = await it.printed()
        assert line.startswith("speech of r/talker failed: ")
        assert line.endswith("the Talker died")


async def test_what_runs_at_its_end_is_ended_without_a_traceback(omni: Path, tmp_path: Path, codes: Codes) -> None:
    """One that speaks, and one that waits for its first sound."""
    async with command(omni, tmp_path / "log") as it:
        codes.put("speaks", made_up(6))
        codes.put("waits", made_up(2))
        waits = asyncio.ensure_future(it.client.post("/v1/code2wav", json={"codes": codes.reference("waits")}))
        async with it.client.stream("POST", "/v1/code2wav", json={"codes": codes.reference("speaks")}) as reply:
            sound = reply.aiter_raw()
            assert await anext(sound)

            async def both_run() -> bool:
                return await counted(it.client, "duet_code2wav_running") == 2

            await until(both_run, "both run", within=60)
            it.child.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                async for _ in sound:
                    pass
        refused = await waits
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_ends")
        assert await it.child.wait() == 0
        ended = "POST /v1/code2wav is ended with the server"
        assert it.log.read_text().splitlines()[1:] == [ended, ended], "behind uvicorn's own line"


@pytest.mark.parametrize(("left", "told"), [(23, True), (24, False)])
async def test_it_tells_of_a_left_context_that_is_too_short(omni: Path, tmp_path: Path, left: int, told: bool) -> None:
    async with command(omni, tmp_path / "log", "--left-context", str(left)) as it:
        printed = await it.printed()
    assert len(printed) == told
    assert not told or "--left-context is 23 frames, and a sample depends on 24" in printed[0]
