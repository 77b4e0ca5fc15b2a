"""The witness proves something only if its codes hang on everything that a runner can get wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engines.witness.make import ARCHITECTURE, make_witness
from engines.witness.record import Frame, Recorder, Row, read

if TYPE_CHECKING:
    from engines.witness.talker import Talker

ROOT = Path(__file__).parents[3]
ROW = Row("scalar", "a", 5, 4, True, 1, 0)
FRAME = Frame("a", 0, tuple(range(16)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch is not installed: make install ENGINES=cpu")
    return make_witness(tmp_path_factory.mktemp("models") / "witness")


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    from safetensors.torch import load_file

    from engines.witness.talker import Talker

    weights = load_file(folder / "model.safetensors")
    spoken = {name.removeprefix("talker."): w for name, w in weights.items() if name.startswith("talker.")}
    vocabulary, hidden = spoken["codec.weight"].shape
    talker = Talker(vocabulary, hidden)
    talker.load_state_dict(spoken)
    return talker.requires_grad_(False)


@pytest.fixture
def inputs(talker: Talker) -> dict[str, Any]:
    """What MTP takes for three rows."""
    import torch

    ids = torch.tensor([10, 20, 30])
    hidden = torch.randn(3, 128, generator=torch.Generator().manual_seed(0))
    text = talker.text_rows(torch.tensor([0, 1, 2]))
    return {"ids": ids, "embeds": talker.codec_rows(ids), "last_hidden": hidden, "text_step": text}


def test_a_seed_makes_one_model(folder: Path, tmp_path: Path) -> None:
    again, other = make_witness(tmp_path / "again"), make_witness(tmp_path / "other", 1)
    weights = [(made / "model.safetensors").read_bytes() for made in (folder, again, other)]
    assert weights[0] == weights[1] != weights[2]
    assert ARCHITECTURE in (folder / "config.json").read_text()


def test_a_frame_is_the_sampled_id_and_15_codes(talker: Talker, inputs: dict[str, Any]) -> None:
    fed, frames = talker.predict(**inputs)
    assert (fed.shape, frames.shape) == ((3, 128), (3, 16))
    assert frames[:, 0].tolist() == [10, 20, 30]
    assert len({tuple(frame) for frame in frames.tolist()}) == 3


def test_rows_are_predicted_alone(talker: Talker, inputs: dict[str, Any]) -> None:
    _, together = talker.predict(**inputs)
    alone = [talker.predict(**{name: rows[k : k + 1] for name, rows in inputs.items()})[1] for k in range(3)]
    assert [frame.tolist() for (frame,) in alone] == together.tolist()


@pytest.mark.parametrize("name", ["ids", "embeds", "last_hidden"])
def test_codes_hang_on_each_input(name: str, talker: Talker, inputs: dict[str, Any]) -> None:
    """Given to other rows than it belongs to, each gives every row another frame."""
    _, frames = talker.predict(**inputs)
    _, others = talker.predict(**{**inputs, name: inputs[name].roll(1, 0)})
    assert (frames != others).any(dim=1).all()


def test_the_row_that_is_fed_hangs_on_the_text_step(talker: Talker, inputs: dict[str, Any]) -> None:
    fed, _ = talker.predict(**inputs)
    other, _ = talker.predict(**{**inputs, "text_step": inputs["text_step"].roll(1, 0)})
    assert (fed != other).any(dim=1).all()


def test_the_last_digits_of_a_hidden_state_change_no_code(talker: Talker) -> None:
    """They hang on the size of the batch: a kernel for 32 rows sums in another order than one for a single row."""
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 1000, (2000,), generator=generator)
    hidden, noise = torch.randn(2, 2000, 128, generator=generator)
    rows = (talker.codec_rows(ids), hidden, talker.text_rows(ids))
    nearly = (rows[0], hidden * (1 + 3e-6 * noise), rows[2])
    assert torch.equal(talker.predict(ids, *rows)[1], talker.predict(ids, *nearly)[1])


def test_a_prompt_row_knows_its_place_and_is_no_codec_row(talker: Talker) -> None:
    import torch

    ids = torch.tensor([7, 8, 9])
    whole = talker.prompt_rows(ids, 4)
    assert torch.equal(whole[2:], talker.prompt_rows(ids[2:], 6))
    assert (whole[2:] != talker.prompt_rows(ids[2:], 0)).any()
    assert (whole != talker.codec_rows(ids)).any(dim=1).all()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = Recorder(path)
    for event in (ROW, FRAME):
        recorder.add(event)
        assert read(path)[-1] == event
    assert ROW.shape == (5, 4, 1)


def test_nothing_is_recorded_unless_a_file_is_named() -> None:
    recorder = Recorder(None)
    recorder.add(ROW)
    assert not recorder.on


def test_the_command_makes_the_same(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "witness"
    command = [sys.executable, "-m", "engines.witness", str(out)]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[-1] == str(out)
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_the_plugin_registers_it_once_and_again() -> None:
    registry = pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu").ModelRegistry
    from engines.witness.plugin import register

    for _ in range(2):
        register()
        assert ARCHITECTURE in registry.get_supported_archs()
