"""vLLM-Omni's own rules, where its wheel is: they accept what we expand, and refuse what we refuse."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from common.topology import Topology, plan
from common.topology.invariants import faults_of
from common.topology.write import as_document
from tests.unit.topology.files import QWEN, TINY, four, kv, topology

pytestmark = pytest.mark.optional


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The folder of the package. It is not imported: that would change vLLM, and wants packages of its own."""
    found = importlib.util.find_spec("vllm_omni")
    if found is None or found.origin is None:
        pytest.skip("vLLM-Omni is not installed here")
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def rules(wheel: Path) -> Any:
    spec = importlib.util.spec_from_file_location("upstream_pd", wheel / "entrypoints" / "pd_utils.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PDDisaggregationMixin


def judged(rules: Any, it: Topology) -> tuple[int, int] | None:
    """The pair that upstream detects, once it has validated it."""
    judge = rules()
    judge._name = "test"
    judge.stage_configs = [
        SimpleNamespace(**{"engine_input_source": [], **stage}, engine_args=SimpleNamespace(**stage))
        for stage in as_document(it)["stages"]
    ]
    judge._init_pd_state()
    pair: tuple[int, int] | None = judge._pd_separation_pair
    return pair


@pytest.mark.parametrize("file", [QWEN, TINY], ids=lambda f: f.stem)
@pytest.mark.parametrize("platform", [None, "cuda", "npu", "xpu"])
def test_upstream_accepts_what_we_expand(rules: Any, file: Path, platform: str | None) -> None:
    assert judged(rules, plan(file, pd=True, platform=platform).topology.on(platform)) == (0, 1)
    assert judged(rules, plan(file, pd=False).topology) is None


@pytest.mark.parametrize(
    "values",
    [
        four({"kv_transfer_config": None}),
        four({}, {"kv_transfer_config": None}),
        four(kv("kv_consumer")),
        four({}, kv("kv_producer")),
        four({}, kv("kv_consumer", kv_connector="MooncakeConnector")),
        four(kv("kv_producer", kv_buffer_device="cpu"), kv("kv_consumer", kv_buffer_device="cuda")),
        four(kv("kv_producer", kv_buffer_size=1.0), kv("kv_consumer", kv_buffer_size=2.0)),
        four({"tensor_parallel_size": 1}, {"tensor_parallel_size": 2, "devices": "3,4"}),
    ],
)
def test_both_refuse(rules: Any, values: dict[str, Any]) -> None:
    it = topology(values)
    assert faults_of(it)
    with pytest.raises(ValueError, match=r"Stage-|stage-|PD"):
        judged(rules, it)


def test_the_real_file_loads_and_ours_has_its_settings(wheel: Path) -> None:
    real = wheel / "deploy" / QWEN.name
    assert yaml.safe_load(QWEN.read_text()) == yaml.safe_load(real.read_text())
    assert plan(real).topology.stages == plan(QWEN).topology.stages
    assert as_document(plan(real, pd=True).topology) == as_document(plan(QWEN, pd=True).topology)


@pytest.mark.parametrize("name", ["qwen3_omni_moe_thinking", "qwen3_omni_moe_mori_intranode"])
def test_its_relatives_load_too(wheel: Path, name: str) -> None:
    assert plan(wheel / "deploy" / f"{name}.yaml").topology.pair is None
