"""Prefill, decode, Talker and Code2Wav, once for the folder; and transformers, whose word is the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.speech.stages import Stages, engines, with_oracle
from tests.real_engines import meet


@pytest.fixture(scope="package")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    root = tmp_path_factory.mktemp("speech")
    with engines(root) as found:
        told = with_oracle(found)
        meet(found.prefill.engine, found.decode.engine)
        yield told
    assert {engine.child.poll() for engine in found.all} == {0}
    assert [path.name for path in root.iterdir() if path.is_socket()] == []
