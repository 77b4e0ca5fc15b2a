"""vLLM's API server: `python -m engines.runner.serve ARGUMENTS`.

If a worker left an error, that is the last line, and the status is 1.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import tempfile
from pathlib import Path

from engines.channel import remove_socket
from engines.runner.lastwords import VARIABLE, left

SERVER = "vllm.entrypoints.openai.api_server"
QUIET = "ignore::UserWarning:multiprocessing.resource_tracker"
"""The tracker outlives the server, and reports what killed workers held."""


def main() -> None:
    handle, name = tempfile.mkstemp(prefix="duet-last-words-")
    os.close(handle)
    os.environ[VARIABLE] = name
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), QUIET)))
    atexit.register(_say, os.getpid(), Path(name))  # before vLLM's own: the first that is registered runs last
    atexit.register(_leave_no_socket, os.getpid())
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def _leave_no_socket(pid: int) -> None:
    """Workers are dead by now; one that publishes left its socket."""
    if os.getpid() == pid:
        remove_socket()


def _say(pid: int, path: Path) -> None:
    if os.getpid() != pid:  # a forked child
        return
    said = left(path)
    path.unlink(missing_ok=True)
    if said is not None:
        sys.stdout.flush()
        print(said, file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
