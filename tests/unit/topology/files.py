"""Deploy files that tests start from, and ways to change them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from common.topology import Topology
from common.topology.document import parse
from common.topology.read import of

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
QWEN = DEPLOY / "qwen3_omni_moe.yaml"
TINY = DEPLOY / "tiny_omni_pd.yaml"


F = TypeVar("F", bound=Callable[..., None])


def with_vllm(test: F) -> F:
    """For a test that imports vLLM, which warns of things that are not ours."""
    needed = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
    return needed(pytest.mark.filterwarnings("ignore")(test))


def three(**thinker: Any) -> dict[str, Any]:
    """A file of three stages on three devices."""
    return {
        "stages": [
            {"stage_id": 0, "devices": "0", **thinker},
            {"stage_id": 1, "devices": "1"},
            {"stage_id": 2, "devices": "2"},
        ]
    }


def four(prefill: dict[str, Any] | None = None, decode: dict[str, Any] | None = None) -> dict[str, Any]:
    """A split written by hand, with settings added to its sides; None takes one away."""
    sides = [
        {"stage_id": 0, "is_prefill_only": True, "devices": "0", **kv("kv_producer")},
        {"stage_id": 1, "is_decode_only": True, "engine_input_source": [0], "devices": "3", **kv("kv_consumer")},
    ]
    for side, more in zip(sides, (prefill or {}, decode or {}), strict=True):
        side |= more
        for name in [name for name, value in more.items() if value is None]:
            del side[name]
    return {"stages": [*sides, {"stage_id": 2, "devices": "1"}, {"stage_id": 3, "devices": "2"}]}


def kv(role: str, **fields: Any) -> dict[str, Any]:
    return {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": role, **fields}}


def topology(values: dict[str, Any]) -> Topology:
    """As a file that says this is read."""
    return of(parse(yaml.safe_dump(values, sort_keys=False).encode(), "t.yaml"))


def written(tmp_path: Path, values: dict[str, Any] | str) -> Path:
    path = tmp_path / "t.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values, sort_keys=False))
    return path
