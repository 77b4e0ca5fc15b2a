"""Model folders: made whole or not at all, and once, however many ask at the same time."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(directory: Path, make: Callable[[Path], object]) -> Path:
    """Returns `directory`, filled by `make` if it was not there yet.

    `make` fills a folder beside it, which takes its place when it is whole. Others that ask meanwhile wait.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
            try:
                make(draft)
                draft.chmod(0o755)
                draft.rename(directory)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return directory
