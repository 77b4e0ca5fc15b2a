"""Draws the tables as Mermaid state diagrams, for the docs: `python -m gateway.lifecycle.diagram`."""

from __future__ import annotations

from gateway.lifecycle.speech import SPEECH
from gateway.lifecycle.states import TERMINAL, Speech, State
from gateway.lifecycle.table import TABLE


def mermaid() -> str:
    """The text of a `stateDiagram-v2`, one line a row of the table, in the table's order."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.ACCEPTED.value}"]
    for (state, event), (to, effects) in TABLE.items():
        does = f" / {', '.join(e.value for e in effects)}" if effects else ""
        lines.append(f"    {state.value} --> {to.value}: {event.value}{does}")
    lines += [f"    {state.value} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)


def speech_mermaid() -> str:
    """The same of the speech axis."""
    lines = ["stateDiagram-v2", f"    [*] --> {Speech.OFF.value}", f"    [*] --> {Speech.WAITING.value}"]
    lines += [f"    {speech.value} --> {to.value}: {event.value}" for (speech, event), to in SPEECH.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"{mermaid()}\n\n{speech_mermaid()}")
