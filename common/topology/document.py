"""A YAML file as plain JSON values, and the line of each of them.

Stricter than YAML where a deploy file would otherwise mean something else than it says: a key twice, a key that is no
text (`on:` is true), a date, a number that is not finite. Anchors and merge keys work; files that unfold without end
do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml

from common.topology.fault import Fault, FileUnreadable, Path, Place, TopologyInvalid

MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
MAX_DEPTH = 40
_YAML = "tag:yaml.org,2002:"
_MERGE = f"{_YAML}merge"
_TAGS = frozenset(f"{_YAML}{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map"))


@dataclass(frozen=True, slots=True)
class Document:
    """`values` is a mapping of text to JSON values; `file` is the name that messages use."""

    file: str
    values: dict[str, Any]
    root: yaml.Node

    def place(self, path: Path) -> Place:
        """Where a path stands; the line of the deepest part of it that the file has."""
        node, line = self.root, _line(self.root)
        for step in path:
            found = _step(node, step)
            if found is None:
                break
            key, node = found
            line = _line(key)
        return Place(path, line)

    def fault(self, rule: str, path: Path, what: str, do: str = "") -> Fault:
        return Fault(rule, what, do, self.place(path), self.file)


def load(path: FilePath) -> Document:
    """Raises FileUnreadable if there is nothing to read, TopologyInvalid for what `parse` refuses."""
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise FileUnreadable([Fault("file", f"cannot be read: {e.strerror}", file=str(path))]) from None
    return parse(raw, str(path))


def parse(raw: bytes, file: str, holds: str = "stages") -> Document:
    """Raises TopologyInvalid unless it is one YAML document, a mapping of JSON values. `holds` is what the mapping is
    expected to hold, in words."""
    if len(raw) > MAX_BYTES:
        raise _refused(file, "yaml.size", f"has {len(raw)} bytes; expected {MAX_BYTES} at most")
    try:
        loader = yaml.SafeLoader(raw)
        root = loader.get_single_node()
        if root is None:
            raise _refused(file, "yaml.empty", f"is empty; expected a mapping with {holds}")
        values = _Builder(loader, file).build(root, ())
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        line = None if mark is None else mark.line + 1
        why = ", ".join(part for part in (e.context, e.problem) if part)
        raise _refused(file, "yaml.syntax", f"is no YAML: {why}", line) from None
    except (yaml.YAMLError, UnicodeError) as e:
        raise _refused(file, "yaml.syntax", f"is no YAML: {str(e).splitlines()[0]}") from None
    except RecursionError:
        raise _refused(file, "yaml.depth", f"is nested too deep; expected {MAX_DEPTH} levels at most") from None
    if not isinstance(values, dict):
        raise _refused(file, "yaml.mapping", f"is a {_kind(root)}; expected a mapping with {holds}", _line(root))
    return Document(file, values, root)


class _Builder:
    """Nodes to values. Counts what it builds, since anchors let a small file unfold to a large one."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self._loader = loader
        self._file = file
        self._built = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        self._built += 1
        if self._built > MAX_VALUES:
            raise self._fault(node, path, "yaml.size", f"more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise self._fault(node, (), "yaml.depth", f"is nested too deep; expected {MAX_DEPTH} levels at most")
        if node.tag not in _TAGS:
            what = f"is a {_kind(node)}; expected text, a number, true, false, null, a list or a mapping"
            raise self._fault(node, path, "yaml.value", what, "put it in quotes if it is text")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            if key.tag != f"{_YAML}str":
                what = (
                    f"the key {key.value} is a {_kind(key)}" if isinstance(key, yaml.ScalarNode) else "a key is no text"
                )
                raise self._fault(key, path, "yaml.key", f"{what}; expected text", "put it in quotes")
            if key.value in seen:
                twice = "the key stands here twice"
                raise self._fault(key, (*path, key.value), "yaml.twice", twice, "remove one of the two")
            seen.add(key.value)
        self._loader.flatten_mapping(node)
        return {str(key.value): self.build(value, (*path, str(key.value))) for key, value in node.value}

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            value = self._loader.construct_object(node)
        except (ValueError, LookupError):  # a tag written by hand, and not what it says: it may be a secret
            what = f"what stands here is no {_kind(node)}"
            raise self._fault(node, path, "yaml.value", what, "put it in quotes if it is text") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._fault(node, path, "yaml.value", f"{node.value} is not finite; expected a number")
        return value

    def _fault(self, node: yaml.Node, path: Path, rule: str, what: str, do: str = "") -> TopologyInvalid:
        return TopologyInvalid([Fault(rule, what, do, Place(path, _line(node)), self._file)])


def _refused(file: str, rule: str, what: str, line: int | None = None) -> TopologyInvalid:
    return TopologyInvalid([Fault(rule, what, place=Place((), line), file=file)])


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _step(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that tells the line, and the node to go on from."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in reversed(node.value) if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def _kind(node: yaml.Node) -> str:
    """What it is, in words: a `list`, a `date`, a `bool`."""
    name = str(node.tag).removeprefix(_YAML)
    return {"seq": "list", "timestamp": "date"}.get(name, name)
