"""The tiny model's folders, the oracle's cases, and one engine's process for each set-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.tiny import make_omni
from tests.contract.talker.oracle import Case, Oracle, cases, save

WITHIN = 500.0
"""Seconds for one engine's process: half a minute on quiet cores."""


@dataclass(frozen=True)
class Folders:
    omni: Path
    talker: Path
    cases: Path
    oracle: list[Case]


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    from engines.talker import make_talker

    root = tmp_path_factory.mktemp("talker")
    omni = make_omni(root / "omni")
    found = cases(Oracle(omni))
    return Folders(omni, make_talker(omni, root / "talker"), save(found, root / "cases.json"), found)


@pytest.fixture(scope="package")
def speak(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Runs `speak.py` in a process of its own: vLLM changes torch for good."""

    def run(requests: list[dict[str, Any]], log: Path | None = None, **job: Any) -> dict[str, Any]:
        job = {"talker": str(folders.talker), "cases": str(folders.cases), "speak": requests, **job}
        path = tmp_path_factory.mktemp("job") / "job.json"
        path.write_text(json.dumps(job))
        env = {**os.environ, **_environment()} | ({"DUET_PHASE_LOG": str(log)} if log else {})
        done = subprocess.run(
            [sys.executable, "-m", "tests.contract.talker.speak", str(path)],
            env=env,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert lines, done.stdout[-4000:] + done.stderr[-4000:]
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
        return found

    return run


def _environment() -> dict[str, str]:
    from common.engine import Role
    from engines.thinker import EngineSpec, environment

    spec = EngineSpec(model="", role=Role.BOTH, port=0, connector=None)
    return {**environment(spec, device="cpu"), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
