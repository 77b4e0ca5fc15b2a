"""`python -m engines.tiny [text|omni] OUT`: makes the model unless the folder is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from engines.models import made_once
from engines.tiny import make_omni, make_text

MAKERS = {"text": make_text, "omni": make_omni}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.tiny", description="Makes a tiny random-weight model.")
    parser.add_argument("kind", nargs="?", choices=sorted(MAKERS), default="text", help="what it can do [text]")
    parser.add_argument("out", type=Path, help="the folder to make")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same model [0]")
    args = parser.parse_args()
    make = MAKERS[args.kind]
    print(made_once(args.out, lambda directory: make(directory, args.seed)))


if __name__ == "__main__":
    main()
