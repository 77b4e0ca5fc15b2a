"""The engines of this folder, started once for it and gone after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.connectors import DEFAULT
from common.engine import Role
from engines.witness.make import make_witness
from tests.e2e.phase.witnesses import BUDGET, NAME, Witness, Witnesses
from tests.real_engines import launch, meet, spec_of, wait_for

CRAMPED_BLOCKS = 10
"""Blocks of 32 tokens; vLLM keeps one for itself. 9 hold two requests of 128 tokens, and a third's prompt."""


@pytest.fixture(scope="session")
def witness_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    return make_witness(tmp_path_factory.mktemp("model") / NAME)


@pytest.fixture(scope="package")
def witnesses(tmp_path_factory: pytest.TempPathFactory, witness_model: Path) -> Iterator[Witnesses]:
    with ExitStack() as stack:
        start = partial(_start, stack, witness_model, tmp_path_factory.mktemp("witnesses"))
        found = Witnesses(
            whole=start("whole", batched=True, max_num_seqs=32),
            chunked=start("chunked", "--max-num-batched-tokens", str(BUDGET)),
            cramped=start("cramped", max_model_len=256, kv_blocks=CRAMPED_BLOCKS),
            prefill=start("prefill", role=Role.PREFILL, kv=DEFAULT),
            decode=start("decode", role=Role.DECODE, kv=DEFAULT, batched=True),
        )
        engines = [getattr(found, name).engine for name in vars(found)]
        wait_for(*engines)
        meet(found.prefill.engine, found.decode.engine, NAME)
        yield found
        for engine in engines:
            engine.child.ask_to_stop()


def _start(
    stack: ExitStack,
    model: Path,
    folder: Path,
    name: str,
    *flags: str,
    role: Role = Role.BOTH,
    kv: str | None = None,
    batched: bool = False,
    **spec: Any,
) -> Witness:
    record = folder / f"{name}.jsonl"
    told = json.dumps({"witness": {"record": str(record), "batched": batched}})
    base = replace(
        spec_of(model, role, kv),
        served_name=NAME,
        extra=("--additional-config", told, *flags),
        **spec,
    )
    journal = folder / f"{name}.journal"
    engine = launch(stack, base, folder / f"{name}.log", env={"DUET_PHASE_LOG": str(journal)})
    return Witness(engine, record, journal)
