"""`python -m engines.witness OUT`: makes the model unless the folder is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from engines.models import made_once
from engines.witness.make import make_witness


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.witness", description="Makes the witness model.")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same model [0]")
    args = parser.parse_args()
    print(made_once(args.out, lambda directory: make_witness(directory, args.seed)))


if __name__ == "__main__":
    main()
