"""vLLM's command line as settings: what `common.topology.launch.flag` wrote, read again.

Only as far as rules look at it. What vLLM makes of a value is vLLM's to say, and so is a flag that is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

SHORT = {"dp": "data_parallel_size", "pp": "pipeline_parallel_size", "tp": "tensor_parallel_size"}
"""Flags with one dash that stand for settings which rules look at."""
NO = "no_"
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?P<inner>(\.[^=]+)?)(?P<value>(=.*)?)", re.DOTALL)


def settings_of(args: Sequence[str]) -> dict[str, Any]:
    """By the names of vLLM's engine arguments; the last one of a name wins, as it does there, and the ones with dots
    make a mapping together that wins over one without.

    `--a-b 1`, `--a_b=1`, `--a-b`, `--no-a-b`, `--a.b 1` and `--a '{"b": 1}'` are known, and several values of one flag
    as a list. A value that is JSON is what that says, any other is text.
    """
    found: dict[str, Any] = {}
    dotted: dict[str, Any] = {}
    for name, inner, values in _flags(args):
        if inner:
            _put(dotted, [name, *inner], _value(values))
        elif not values and name.startswith(NO):
            found[name.removeprefix(NO)] = False
        else:
            found[name] = _value(values)
    return {**found, **dotted}


def _flags(args: Sequence[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each flag's name, what stands behind dots in it, and its values. What stands before the first flag is dropped."""
    flags: list[tuple[str, list[str], list[str]]] = []
    for arg in args:
        if match := _FLAG.fullmatch(arg):
            name = match["name"].replace("-", "_")
            inner = match["inner"].split(".")[1:]
            flags.append((SHORT.get(name, name), inner, [match["value"][1:]] if match["value"] else []))
        elif flags:
            flags[-1][2].append(arg)
    yield from flags


def _value(values: list[str]) -> Any:
    if not values:
        return True
    return _plain(values[0]) if len(values) == 1 else [_plain(value) for value in values]


def _plain(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _put(found: dict[str, Any], path: list[str], value: Any) -> None:
    name, *inner = path
    if not inner:
        found[name] = value
        return
    if not isinstance(found.get(name), dict):
        found[name] = {}
    _put(found[name], inner, value)
