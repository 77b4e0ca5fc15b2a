"""A command with children, to be ended by tests: `tree.py PIDS [ignore-term]`.

Its children are one in its session and one in a session of its own. Writes the pids of all three to the file PIDS.
"""

from __future__ import annotations

import os
import signal
import sys


def main(pids: str, *how: str) -> None:
    if "ignore-term" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    born = [os.getpid()]
    for own_session in (False, True):
        child = os.fork()
        if child == 0:
            if own_session:
                os.setsid()
            while True:
                signal.pause()
        born.append(child)
    with open(f"{pids}.new", "w") as out:
        out.write(" ".join(map(str, born)))
    os.rename(f"{pids}.new", pids)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
