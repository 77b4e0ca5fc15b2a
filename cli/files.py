"""Files that are written whole or not at all: what was there before stays until all of the new one is."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.http import Refused


def expect_writable(path: Path) -> None:
    """Raises Refused if `write_whole` could not write there now. Leaves nothing behind."""
    with _told(path):
        place = _place(path)
        if _is_kept(place):
            return
        if place.exists():
            os.close(os.open(place, os.O_WRONLY))
        beside = _beside(place)
        beside.touch(exist_ok=False)
        beside.unlink()


def write_whole(path: Path, data: bytes) -> None:
    """Raises Refused if it cannot, and `path` is as it was. What is no file is written as it is; a link is followed."""
    with _told(path):
        place = _place(path)
        if _is_kept(place):
            place.write_bytes(data)
            return
        beside = _beside(place)
        try:
            beside.write_bytes(data)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise Refused(f"{path} cannot be written: {e.strerror}") from None


def _place(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_kept(place: Path) -> bool:
    """Whether there is something that no file may take the place of."""
    return place.exists() and not place.is_file() and not place.is_dir()


def _beside(place: Path) -> Path:
    return place.with_name(f".duet-{secrets.token_hex(8)}.part")
