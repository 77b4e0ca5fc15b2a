"""A folder for one run: what engines put down while they run, and nothing that is worth keeping.

vLLM's processes talk by sockets that they never remove, under names of 36 letters, and meet in files that stay as well.
Where they go is said by two variables. Another goes with them: what torch has compiled is kept where it was, for the
next start.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

LONGEST = 107
"""Bytes of a Unix socket's path."""
SOCKET = 36
"""Bytes of the longest name in the folder: a UUID."""
MADE = len("/xxxxxxxx/")
"""Bytes that `mkdtemp` adds to the prefix, with what stands around them."""
SHORT = Path("/tmp")
SOCKETS = "VLLM_RPC_BASE_PATH"
COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def make(prefix: str) -> Path:
    """In the temporary folder; where its name leaves no room for a socket's behind it, in `/tmp`."""
    inside = tempfile.gettempdir()
    fits = len(os.fsencode(inside)) + len(os.fsencode(prefix)) + MADE + SOCKET <= LONGEST
    return Path(tempfile.mkdtemp(prefix=prefix, dir=inside if fits else SHORT))


def variables(folder: Path) -> dict[str, str]:
    """For engines that are to leave everything in `folder`."""
    compiled = os.environ.get(COMPILED) or f"{tempfile.gettempdir()}/torchinductor_{_user()}"
    return {"TMPDIR": str(folder), SOCKETS: str(folder), COMPILED: compiled}


def _user() -> str:
    """As torch names it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid_{os.getuid()}"
