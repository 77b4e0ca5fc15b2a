"""vLLM's API server: `python -m engines.runner.serve ARGUMENTS`.

If a worker left an error, that is the last line of all that write here, and the status is 1.
"""

from __future__ import annotations

import atexit
import os
import runpy
import shutil
import sys
from pathlib import Path

from common import scratch
from engines.channel import remove_socket
from engines.runner.below import adopt_orphans, end_all_below
from engines.runner.lastwords import VARIABLE, left

SERVER = "vllm.entrypoints.openai.api_server"
QUIET = "ignore::UserWarning:multiprocessing.resource_tracker"
"""The tracker outlives the server, and reports what killed workers held."""


def main() -> None:
    adopt_orphans()
    folder = scratch.make("duet-engine-")
    os.environ[VARIABLE] = str(folder / "last-words")
    if scratch.SOCKETS not in os.environ:  # else it is seen to by whoever starts this
        os.environ.update(scratch.variables(folder))
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), QUIET)))
    atexit.register(_end, os.getpid(), folder)
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def _end(pid: int, folder: Path) -> None:
    """After what vLLM does at its exit. What torch and multiprocessing do would come later, and does not when there is
    something to say."""
    if os.getpid() != pid:  # a forked child
        return
    end_all_below()  # vLLM does not wait for all of them
    remove_socket()
    said = left(Path(os.environ[VARIABLE]))
    shutil.rmtree(folder, ignore_errors=True)
    if said is not None:
        sys.stdout.flush()
        print(said, file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
