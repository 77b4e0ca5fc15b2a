"""How errors look: one message on stderr, no traceback. Status 2 for what a person did wrong, 1 for what broke."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import typer

from common.errors import ConfigurationError, DuetError


@contextmanager
def told(flags: Collection[str] = ()) -> Iterator[None]:
    """Turns DuetError and pydantic's ValidationError into a message and an exit.

    `flags` are the settings that were given on the command line: the others came from the environment.
    """
    try:
        yield
    except DuetError as e:
        complain(e.message)
        raise typer.Exit(2 if isinstance(e, ConfigurationError) else 1) from None
    except ValueError as e:
        faults = _faults(e)
        if faults is None:
            raise
        for name, fault in faults:
            complain(f"--{name.replace('_', '-')}: {fault}" if name in flags else f"DUET_{name.upper()}: {fault}")
        raise typer.Exit(2) from None


def complain(message: str) -> None:
    typer.echo(f"duet: {message}", err=True)


def _faults(error: ValueError) -> list[tuple[str, str]] | None:
    """Each setting and what is wrong with it; None for an error that is not pydantic's."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    return [(str(fault["loc"][0]), f"{fault['msg']}; got {_shown(fault['input'])}") for fault in error.errors()]


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
