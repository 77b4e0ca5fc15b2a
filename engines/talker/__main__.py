"""`python -m engines.talker OMNI OUT`: takes the Talker out of a Qwen3-Omni's folder, unless OUT is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from engines.models import made_once
from engines.talker.checkpoint import make_talker


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.talker", description="Makes a folder with a Talker alone.")
    parser.add_argument("omni", type=Path, help="the folder of a whole Qwen3-Omni")
    parser.add_argument("out", type=Path, help="the folder to make")
    args = parser.parse_args()
    print(made_once(args.out, lambda directory: make_talker(args.omni, directory)))


if __name__ == "__main__":
    main()
