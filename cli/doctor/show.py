"""Findings as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from cli.doctor.finding import Finding, Severity, count

FORMAT = 1
"""Of the JSON form. Fields may be added to it, none leaves it or changes its meaning."""
_MARKS = {
    Severity.OK: ("✓", "green"),
    Severity.WARNING: ("!", "yellow"),
    Severity.FAULT: ("✗", "bold red"),
}
_ORDER = list(Severity)


def as_json(findings: Sequence[Finding]) -> str:
    """`{format, worst, counts, findings: [{check, severity, about, what, why, do}]}`."""
    counts = count(findings)
    worst = max((f.severity for f in findings), key=_ORDER.index, default=Severity.OK)
    rows = [
        {"check": f.check, "severity": f.severity, "about": f.about, "what": f.what, "why": f.why, "do": f.do}
        for f in findings
    ]
    return json.dumps(
        {"format": FORMAT, "worst": worst, "counts": counts, "findings": rows}, indent=2, ensure_ascii=False
    )


def as_text(findings: Sequence[Finding], console: Console) -> None:
    """A line for each finding, and under what is not ok why it matters and what to do; the count last.

    Colours and marks on a terminal, words elsewhere: a pipe is for grep.
    """
    for finding in findings:
        console.print(_lines(finding, marks=console.is_terminal), soft_wrap=not console.is_terminal)
    counts = count(findings)
    console.print(Text(", ".join(f"{n} {_noun(severity, n)}" for severity, n in counts.items())), soft_wrap=True)


def _lines(finding: Finding, *, marks: bool) -> Text:
    mark, style = _MARKS[finding.severity]
    about = f"{finding.about}: " if finding.about else ""
    head = f"{mark} " if marks else f"{finding.severity:8}"
    text = Text()
    text.append(head, style)
    text.append(f"{finding.check}  ", "dim" if marks else "")
    text.append(f"{about}{finding.what}", "" if finding.severity is Severity.OK else "bold")
    for label, words in (("why", finding.why), ("do", finding.do)):
        if words:
            text.append(f"\n    {label:4}{words}")
    return text


def _noun(severity: Severity, number: int) -> str:
    if severity is Severity.OK:
        return "ok"
    return severity.value if number == 1 else f"{severity.value}s"
