"""Draws the table as a Mermaid state diagram, for the docs: `python -m gateway.lifecycle.diagram`."""

from __future__ import annotations

from gateway.lifecycle.states import TERMINAL, State
from gateway.lifecycle.table import TABLE


def mermaid() -> str:
    """The text of a `stateDiagram-v2`, one line a row of the table, in the table's order."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.ACCEPTED.value}"]
    for (state, event), (to, effects) in TABLE.items():
        does = f" / {', '.join(e.value for e in effects)}" if effects else ""
        lines.append(f"    {state.value} --> {to.value}: {event.value}{does}")
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)


if __name__ == "__main__":
    print(mermaid())
