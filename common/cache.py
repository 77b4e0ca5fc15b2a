"""Where prepared models are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`$DUET_CACHE_DIR`, else `$XDG_CACHE_HOME/duet`, else `~/.cache/duet`; made if it is not there."""
    if own := os.environ.get("DUET_CACHE_DIR"):
        path = Path(own)
    elif base := os.environ.get("XDG_CACHE_HOME"):
        path = Path(base) / "duet"
    else:
        path = Path.home() / ".cache" / "duet"
    path.mkdir(parents=True, exist_ok=True)
    return path
