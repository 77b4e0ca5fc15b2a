"""The model that `docs/phase-contract.md` shows is one: filled in with arithmetic, it says what it must."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import HIDDEN, MODULUS, codes_of, fed_row, prompt_row, text_of
from tests.unit.runner.test_contract import TOKENS, arrive, fed

DOCS = (Path(__file__).parents[3] / "docs" / "phase-contract.md").read_text()


def wide(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[:, None].expand(-1, HIDDEN).contiguous()


def shown() -> type:
    """The class that is shown, with what it leaves to its reader."""
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL) if "class MyTalker" in block]
    names: dict[str, Any] = {"nn": SimpleNamespace(Module=object), "require_phase_contract": lambda config: None}
    exec(code, names)

    class Filled(names["MyTalker"]):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(vllm_config=None)

        def __call__(self, *, positions: torch.Tensor, inputs_embeds: torch.Tensor, **_: Any) -> torch.Tensor:
            return wide(*((inputs_embeds[:, 0].long() * 3 + positions * 5 + 2) % MODULUS).tolist())

        def prompt_rows(self, info: dict[str, Any]) -> torch.Tensor:
            ids = info["sampling_extra_args"]["prompt"]
            return wide(*(prompt_row(token, k) for k, token in enumerate(ids)))

        def text_row(self, info: dict[str, Any], step: int) -> torch.Tensor:
            return wide(text_of(step))

        def codec(self, ids: torch.Tensor) -> torch.Tensor:
            return wide(*ids.tolist())

        def predict(self, ids: torch.Tensor, embeds: torch.Tensor, last: torch.Tensor) -> Any:
            """The text is added behind: the codes cannot hang on it here, so it is left out of them."""
            inputs = [(int(token), int(hidden)) for token, hidden in zip(ids, last[:, 0], strict=True)]
            return torch.tensor([codes_of(*one, 0) for one in inputs]), wide(*(fed_row(*one, 0) for one in inputs))

    return Filled


def test_the_model_that_is_shown_speaks() -> None:
    s = Stage(model=shown()())
    arrive(s, "r", 5)
    prompt = s.requests["r"].ids
    s.requests["r"].extra_args = {"prompt": prompt}
    rows = fed(s.step(("r", 0, 4)), "r") + fed(s.step(("r", 4, 1)), "r")
    assert rows == [prompt_row(token, k) for k, token in enumerate(prompt)]
    for step in range(3):
        position = 5 + step
        hidden = (rows[-1] * 3 + (position - 1) * 5 + 2) % MODULUS
        s.requests["r"].output.append(TOKENS[step])
        rows += fed(s.step(("r", position, 1)), "r")
        assert rows[-1] == fed_row(TOKENS[step], hidden, 0) + text_of(step)
        assert s.codes("r") == codes_of(TOKENS[step], hidden, 0)
