"""Child processes that end with their parent, whatever ends it.

    parent ── stdin pipe ──> guard ── own session ──> command ──> its children
                              │ reads EOF when the parent is gone, SIGKILL included
                              └ adopts orphans (Linux), and leaves none behind

`child.py` starts and stops one, `guard.py` is the small process in between, `parent.py` asks the system to end this
process with its own parent.
"""

from common.process.child import Child
from common.process.parent import die_with_parent

__all__ = ["Child", "die_with_parent"]
