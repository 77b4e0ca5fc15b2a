from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from cli.local.checklist import Checklist


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def plain(clock: Clock, *names: str) -> tuple[Checklist, StringIO]:
    out = StringIO()
    return Checklist(names, console=Console(file=out, force_terminal=False, width=40), clock=clock), out


def test_a_line_for_each_change(clock: Clock) -> None:
    checklist, out = plain(clock, "model", "prefill-1")
    with checklist:
        checklist.start("model", "tiny")
        clock.now += 2.25
        checklist.done("model", "tiny, made")
        checklist.start("prefill-1")
        clock.now += 0.5
        checklist.progress("prefill-1", "weights")
        checklist.progress("prefill-1", "weights")
        clock.now += 10
        checklist.failed("prefill-1")
    assert out.getvalue() == (
        "running    0.0 s  model (tiny)\n"
        "done       2.2 s  model (tiny, made)\n"
        "running    0.0 s  prefill-1\n"
        "running    0.5 s  prefill-1 (weights)\n"
        "failed    10.5 s  prefill-1 (weights)\n"
    )


def test_a_long_line_is_one_line_and_its_brackets_are_brackets(clock: Clock) -> None:
    checklist, out = plain(clock, "model")
    note = "[bold]" + "x" * 100 + " :smile:"
    with checklist:
        checklist.start("model", note)
    assert out.getvalue() == f"running    0.0 s  model ({note})\n"


def test_on_a_terminal_it_is_a_table_of_all(clock: Clock) -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=60, color_system=None, _environ={})
    with Checklist(["model", "valkey", "gateway"], console=console, clock=clock) as checklist:
        checklist.start("model", "[tiny]")
        clock.now += 3
        checklist.done("model", "[tiny]")
        checklist.start("valkey")
        clock.now += 1.5
    shown = re.sub(r"\x1b\[\S*?[a-zA-Z]", "", out.getvalue()).splitlines()
    assert [line.split() for line in shown[-3:]] == [
        ["✓", "model", "3.0", "s", "[tiny]"],
        ["…", "valkey", "1.5", "s"],
        ["·", "gateway"],
    ]
