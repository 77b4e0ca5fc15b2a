"""The clients, and how one is run: its script in its own environment, with a base URL and a key and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PYTHON = ROOT / ".clients/bin/python"
MODULES = HERE / "node/node_modules"
WITHIN = 240.0
"""Seconds for one run. It takes some; on a busy machine the imports alone of some of these libraries take a minute."""

Told = Mapping[str, Any]
"""What a script told of each thing: `clients/telling.py`."""

COMMON = ("chat", "structured", "unknown_model", "wrong_key", "bad_request", "busy_429", "busy_503")
TALK = ("stream", "tools", "stream_tools")


@dataclass(frozen=True)
class Client:
    """`things` is what its script can do."""

    name: str
    script: str
    things: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """Skips the test where the client's environment is not there."""
        if not self.script.endswith(".mjs"):
            if not PYTHON.exists():
                pytest.skip("the Python clients are not installed: make clients")
            return str(PYTHON), str(HERE / "clients" / self.script)
        node = shutil.which("node")
        if node is None:
            pytest.skip("node is missing: Debian packages nodejs and npm, then make clients")
        if not MODULES.exists():
            pytest.skip("the Node clients are not installed: Debian package npm, then make clients")
        return node, str(HERE / "node" / self.script)


CLIENTS = (
    Client("openai-npm", "use_openai.mjs", (*COMMON, *TALK, "models", "speak", "stream_speak")),
    Client("langchain-openai", "use_langchain.py", (*COMMON, *TALK, "structured_by_tool")),
    Client("litellm", "use_litellm.py", (*COMMON, *TALK)),
    Client("pydantic-ai", "use_pydantic_ai.py", (*COMMON, *TALK, "structured_by_tool")),
    Client("instructor", "use_instructor.py", (*COMMON, "structured_by_tool", "stream_structured", "asked_again")),
    Client("ai-sdk", "use_ai_sdk.mjs", (*COMMON, *TALK)),
    Client("llm", "use_llm.py", (*COMMON, *TALK)),
)


def who_can(thing: str) -> pytest.MarkDecorator:
    """A test for each client that can do it."""
    able = [client for client in CLIENTS if thing in client.things]
    return pytest.mark.parametrize("client", able, ids=[client.name for client in able])


async def ask(client: Client, url: str, key: str, model: str, things: tuple[str, ...], *, home: Path) -> Told:
    """Runs the script once. Nothing of this process's environment reaches it but where programs are."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet for prices as it starts
    }
    command = (*client.command, f"{url}/v1", key, model, *things)
    process = await asyncio.create_subprocess_exec(*command, env=env, cwd=home, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(WITHIN):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode()
    told: Told = json.loads(out.decode().strip().splitlines()[-1])
    return told
