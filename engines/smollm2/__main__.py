"""`python -m engines.smollm2 OUT`: makes the model unless the folder has it. Says what it does, a line each."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common.errors import DuetError
from engines.models import made_once
from engines.smollm2.convert import convert
from engines.smollm2.fetch import fetch_gguf


def make(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        print("downloading SmolLM2-135M-Instruct (98 MB)", flush=True)
        gguf_file = fetch_gguf(Path(scratch))
        print("converting it to float32", flush=True)
        convert(gguf_file, directory)


def main() -> None:
    out = Path(sys.argv[1])
    try:
        made_once(out, make)
    except DuetError as e:
        sys.exit(e.message)
    print(out)


if __name__ == "__main__":
    main()
