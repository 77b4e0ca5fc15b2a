"""A model whose class says that it needs the contract: vLLM's loaders ask before they make it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.phase import CONTRACT_VERSION
from engines.runner.errors import RuntimeUnsupported
from engines.runner.plugin import register

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu"),
    pytest.mark.filterwarnings("ignore"),  # torch's own, about itself
]


class Telling:
    phase_contract = CONTRACT_VERSION


class Stock:
    pass


def config(worker: type, model: type) -> Any:
    return SimpleNamespace(
        parallel_config=SimpleNamespace(worker_cls=worker),
        scheduler_config=SimpleNamespace(enable_chunked_prefill=True),
        model_config=model,
    )


class Plain:
    """A model that is made as vLLM makes one."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        self.prefix = prefix


class Needy(Plain):
    requires_phase_contract = True


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What vLLM's loaders make models with, when the plugin has been there; everything is as before afterwards."""
    from vllm.model_executor.model_loader import base_loader, utils

    def stock(vllm_config: Any, *, prefix: str = "", model_class: Any = None, model_config: Any = None) -> Any:
        found = model_class or utils.get_model_architecture(model_config or vllm_config.model_config)[0]
        return found(vllm_config=vllm_config, prefix=prefix)

    for module in (utils, base_loader):
        monkeypatch.setattr(module, "initialize_model", stock)
    monkeypatch.setattr(utils, "get_model_architecture", lambda config: (config, "arch"))
    register()
    asking = base_loader.initialize_model
    assert asking is utils.initialize_model
    assert asking is not stock
    register()
    assert base_loader.initialize_model is asking, "a second call changes nothing"
    return asking


@pytest.mark.parametrize("way", ["vllm_config", "model_class", "model_config"])
def test_a_declared_model_is_refused_on_a_worker_that_tells_no_phase(make: Any, way: str) -> None:
    def made(model: type, worker: type) -> Any:
        if way == "vllm_config":
            return make(config(worker, model), prefix="p")
        return make(config(worker, Plain), prefix="p", **{way: model})

    with pytest.raises(RuntimeUnsupported, match="tells a model no phase"):
        made(Needy, Stock)
    for model, worker in ((Plain, Stock), (Plain, Telling), (Needy, Telling)):
        assert type(made(model, worker)) is model


def test_every_loader_of_this_vllm_asks() -> None:
    """In a process of its own: the plugin changes modules for good."""
    program = """
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import vllm.model_executor.model_loader as loaders
from engines.runner.plugin import register
stock = loaders.utils.initialize_model
register()
for found in pkgutil.iter_modules(loaders.__path__):
    module = importlib.import_module(f"{loaders.__name__}.{found.name}")
    assert getattr(module, "initialize_model", None) is not stock, module
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_vllm_that_makes_models_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.model_loader import utils

    monkeypatch.delattr(utils, "initialize_model")
    with pytest.raises(
        RuntimeUnsupported, match=r"utils has no initialize_model, .* leave duet_runner out of VLLM_PLUGINS"
    ):
        register()
