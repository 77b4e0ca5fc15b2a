"""Prefill, decode, Talker and Code2Wav, once for the folder; and transformers, whose word is the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from common.engine import Role
from engines.tiny import make_omni
from tests.contract.talker.oracle import Oracle, cases
from tests.e2e.speech.stages import Stages, code2wav, talker, thinker
from tests.real_engines import wait_for


@pytest.fixture(scope="package")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    from engines.talker import make_talker

    root = tmp_path_factory.mktemp("speech")
    omni = make_omni(root / "omni")
    spoken = make_talker(omni, root / "talker")
    with ExitStack() as stack:
        prefill, decode = (thinker(stack, omni, role, root) for role in (Role.PREFILL, Role.DECODE))
        talking = talker(stack, spoken, root)
        vocoding = code2wav(stack, omni, root)
        oracle = Oracle(omni)
        found = Stages(prefill, decode, talking, vocoding, cases(oracle), oracle.sound, omni, spoken)
        engines = [prefill.engine, decode.engine, talking.engine, vocoding]
        wait_for(*engines)
        yield found
        for engine in engines:
            engine.child.ask_to_stop()
    assert {engine.child.poll() for engine in engines} == {0}
    assert [path.name for path in root.iterdir() if path.is_socket()] == []
