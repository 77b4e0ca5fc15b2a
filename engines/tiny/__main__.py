"""`python -m engines.tiny OUT [SEED]`: makes the model unless the folder has one."""

from __future__ import annotations

import sys
from pathlib import Path

from engines.models import made_once
from engines.tiny.text import make_text


def main() -> None:
    out, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    made_once(out, lambda directory: make_text(directory, seed))
    print(out)


if __name__ == "__main__":
    main()
