"""`python -m tests.unit.runner.family METHOD`: a server, an engine core, a worker, as vLLM starts them.

Each prints its pid. A process that is forked does not call `end_with_parent`, as vLLM loads no plugins there.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading

from engines.runner.parent import end_with_parent

BELOW = 2


def main(method: str, below: int) -> None:
    if method == "spawn" or below == BELOW:
        end_with_parent()
        end_with_parent()
    child = multiprocessing.get_context(method).Process(target=main, args=(method, below - 1))
    if below:
        # in a thread that ends, which is no parent's end
        starting = threading.Thread(target=child.start)
        starting.start()
        starting.join()
    os.write(1, f"{os.getpid()}\n".encode())  # at once, which `print` is not where outputs are unbuffered
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], BELOW)
