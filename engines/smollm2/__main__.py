"""`python -m engines.smollm2 OUT`: makes the model unless the folder is there. Says what it does, a line each."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from common.errors import DuetError
from engines.smollm2.prepare import prepare


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.smollm2", description="Makes SmolLM2-135M-Instruct.")
    parser.add_argument("out", type=Path, help="the folder to make")
    try:
        print(prepare(parser.parse_args().out, say=partial(print, flush=True)))
    except DuetError as e:
        sys.exit(e.message)


if __name__ == "__main__":
    main()
