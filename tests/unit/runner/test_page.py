"""`docs/phase-contract.md` and the README: the commands are commands, the tables are the code's."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cli.main import app
from engines.runner import identity
from engines.runner.memory import merge
from engines.runner.runtime import WORKERS
from engines.thinker import EngineSpec, command

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "phase-contract.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^(?:\w+=\S+ )?(?:\.venv/bin/)?duet (engine thinker .*)$", PAGE + README, re.MULTILINE)


def test_there_are_commands_of_both() -> None:
    assert any("my-talker" in line for line in COMMANDS)
    assert any("/tmp/witness" in line for line in COMMANDS)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_starts_an_engine(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to vLLM, which takes what it is given."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    specs: list[EngineSpec] = []
    monkeypatch.setattr("engines.thinker.exec_thinker", specs.append)
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0, done.output
    (spec,) = specs
    _python, flag, module, *args = command(spec, device="cpu")
    assert (flag, module) == ("-m", "engines.runner.serve")
    told = make_arg_parser(FlexibleArgumentParser()).parse_args(args)
    assert told.model == spec.model
    assert (told.worker_cls == WORKERS["cpu"]) == (spec.channel is None)


def test_the_package_block_names_a_plugin() -> None:
    (source,) = [text for _, text in BLOCKS if "entry-points" in text]
    plugins = tomllib.loads(source)["project"]["entry-points"]["vllm.general_plugins"]
    assert list(plugins.values()) == ["my_package:register"]


def test_our_workers_are_named() -> None:
    assert set(re.findall(r"--worker-cls ([\w.]+)", PAGE)) == set(WORKERS.values())


def test_everything_that_a_model_may_have_is_read_somewhere() -> None:
    table = PAGE.partition("## What a model has")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = {name for cell in cells for name in re.findall(r"`(\w+)", cell)} - {"updates"}
    assert {"requires_phase_contract", "has_preprocess", "talker_mtp", "gpu_resident_buffer_keys"} <= names
    code = "".join(path.read_text() for path in (ROOT / "engines" / "runner").glob("*.py"))
    assert [name for name in names if f'"{name}"' not in code] == []


def test_the_identity_is_told_word_for_word() -> None:
    assert identity.__doc__ is not None
    table = [line for line in identity.__doc__.splitlines() if line.startswith("|")]
    assert len(table) > 10
    assert "\n".join(table) in PAGE


def test_what_is_copied_of_updates() -> None:
    shared = torch.zeros(1)
    kept: dict[str, Any] = {}
    merge(kept, {"a": shared, "b": [shared], "c": {"d": shared, "e": {"f": shared}}, "g": (shared,)}, frozenset())
    shared += 1
    assert (kept["a"], kept["b"], kept["c"]["d"]) == (0, [torch.zeros(1)], 0), "copied"
    assert (kept["c"]["e"]["f"], kept["g"]) == (1, (torch.ones(1),)), "kept as they are"
