r"""A record of every row and code, for tests and for looking into a talker: JSON lines in a file.

| environment | meaning |
| --- | --- |
| `DUET_PHASE_LOG` | the file; lines are added. Off without it. With tensor parallelism only the first rank writes |

| event | fields, beside `step` and `request` |
| --- | --- |
| `row` | `row` (index in the batch), `prompt_len`, `computed`, `span`, `num_tokens`, `is_prefill`, `mtp` (its newest \
position went through MTP), `replayed` (positions fed again) |
| `codes` | `position`, `codes` (a list, one of each group) |
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import IO

from torch import Tensor

from engines.runner.mtp import Taken
from engines.runner.rows import Row

VARIABLE = "DUET_PHASE_LOG"


class Journal:
    """Appends to one file."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._step = 0

    @classmethod
    def from_environment(cls) -> Journal | None:
        """None if nothing is to be written here."""
        path = os.environ.get(VARIABLE)
        if not path or not _first_rank():
            return None
        return cls(open(path, "a", encoding="utf-8"))

    def write(self, rows: Sequence[Row], replayed: Mapping[int, int], taken: Taken, codes: Tensor | None) -> None:
        """One step. `replayed` counts positions by row; `codes` `[n, groups]` are aligned with `taken`."""
        predicted = {row.index for row in taken.rows}
        lines = [
            {
                "event": "row",
                "step": self._step,
                "request": row.request,
                "row": row.index,
                "prompt_len": row.phase.prompt_len,
                "computed": row.phase.num_computed,
                "span": row.phase.span,
                "num_tokens": row.phase.num_tokens,
                "is_prefill": row.phase.is_prefill,
                "mtp": row.index in predicted,
                "replayed": replayed.get(row.index, 0),
            }
            for row in rows
        ]
        if codes is not None:
            lines += [
                {
                    "event": "codes",
                    "step": self._step,
                    "request": row.request,
                    "position": row.phase.num_computed,
                    "codes": found,
                }
                for row, found in zip(taken.rows, codes.tolist(), strict=True)
            ]
        self._file.write("".join(json.dumps(line) + "\n" for line in lines))
        self._file.flush()
        self._step += 1


def _first_rank() -> bool:
    from vllm.distributed import parallel_state

    return parallel_state.get_tensor_model_parallel_rank() == 0
