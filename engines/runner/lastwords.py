"""Why an engine ends, as the last line that it writes.

vLLM's worker raises it, the engine core and the API server then say at length that something was raised, and the API
server ends with status 0. So the worker leaves the error in a file, and `serve.py` says it at the very end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import DuetError

VARIABLE = "DUET_LAST_WORDS"
"""The file. Without it nothing is left; the error is in the worker's log all the same."""


@contextmanager
def last_words() -> Iterator[None]:
    """Leaves a DuetError that passes, on its way."""
    try:
        yield
    except DuetError as e:
        leave(e)
        raise


def leave(error: DuetError) -> None:
    """As one line, whatever lines the text has. The first one counts: with several ranks each leaves its own.

    A file that cannot be written changes nothing: the error that is on its way is the one to be heard.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return
    kind = type(error)
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    with suppress(OSError), open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        if file.tell() == 0:
            file.write(f"{kind.__module__}.{kind.__qualname__}: {text}\n")


def left(path: Path) -> str | None:
    """What was left there: one line."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text.splitlines()[0] if text else None
