"""Errors a person can act on: one message, exit status 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import ValidationError

from common.errors import DuetError


@contextmanager
def told() -> Iterator[None]:
    """Turns what a person did wrong into a message on stderr."""
    try:
        yield
    except ValidationError as e:
        for fault in e.errors():
            name = ".".join(str(part) for part in fault["loc"])
            flag = f"--{name.replace('_', '-')} (DUET_{name.upper()})"
            typer.echo(f"duet: {flag}: {fault['msg']}; got {_shown(fault['input'])}", err=True)
        raise typer.Exit(2) from None
    except DuetError as e:
        typer.echo(f"duet: {e.message}", err=True)
        raise typer.Exit(2) from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
