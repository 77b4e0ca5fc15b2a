"""The Talker's workers with an ear at the model's boundary: what its hooks are told, as JSON lines in a file.

The runner's journal says what the runner decided. This says what came over at the model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN

VARIABLE = "DUET_TEST_HEARD"
"""The file."""
WORKERS = {
    "cpu": "tests.e2e.features.listening_cpu.ListeningCPUWorker",
    "cuda": "tests.e2e.features.listening_gpu.ListeningGPUWorker",
}


class Listening:
    """Stands before a phase-aware runner in the bases."""

    def attach_model(self: Any) -> None:
        heard = Path(os.environ[VARIABLE])
        for name, told in (
            ("preprocess", lambda **k: [_row(k["input_ids"].shape[0], k)]),
            ("preprocess_decode_batch", lambda **k: [_row(1, info) for info in k["req_infos"]]),
            ("talker_mtp", lambda *_, req_ids, **__: [{"request": request} for request in req_ids]),
        ):
            setattr(self.model, name, _heard(getattr(self.model, name), name, told, heard))
        super().attach_model()  # type: ignore[misc]


def _row(tokens: int, info: Mapping[str, Any]) -> dict[str, Any]:
    """The keys as the model got them: nothing is worked out here."""
    return {
        "request": info["request_id"],
        "tokens": tokens,
        "keys": [info[k] for k in (PROMPT_LEN, NUM_COMPUTED, IS_PREFILL)],
    }


def _heard(hook: Callable[..., Any], name: str, told: Callable[..., list[dict[str, Any]]], file: Path) -> Any:
    @wraps(hook)
    def listening(*args: Any, **kwargs: Any) -> Any:
        with file.open("a") as out:
            out.writelines(json.dumps({"hook": name, **row}) + "\n" for row in told(*args, **kwargs))
        return hook(*args, **kwargs)

    return listening
