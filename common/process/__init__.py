"""Child processes that end with their parent, whatever ends it.

    parent ── pipe ──> two guards ──> command, in a session of its own ──> its children

| module | what is in it |
| --- | --- |
| `child.py` | starts a command under guards, and ends it |
| `guard.py` | the guards: they end everything below them when the pipe is at EOF, SIGKILL of the parent included |
| `parent.py` | the other direction: ends this process with its own parent |
"""

from common.process.child import Child
from common.process.parent import die_with_parent, watch_parent

__all__ = ["Child", "die_with_parent", "watch_parent"]
