"""`python -m engines.tiny OUT`: makes the model unless the folder is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from engines.models import made_once
from engines.tiny.text import make_text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.tiny", description="Makes a tiny random-weight model.")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same model [0]")
    args = parser.parse_args()
    print(made_once(args.out, lambda directory: make_text(directory, args.seed)))


if __name__ == "__main__":
    main()
