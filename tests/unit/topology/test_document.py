from __future__ import annotations

from pathlib import Path

import pytest

from common.topology import FileUnreadable, TopologyInvalid
from common.topology.document import load, parse

TEXT = b"""\
base: &base
  devices: "0"
  env: {A: 1}
stages:
  - <<: *base
    stage_id: 0
    devices: "1"
  - *base
"""


def test_values_and_their_lines() -> None:
    document = parse(TEXT, "f")
    assert document.values["stages"] == [
        {"devices": "1", "env": {"A": 1}, "stage_id": 0},
        {"devices": "0", "env": {"A": 1}},
    ]
    for path, line in (
        ((), 1),
        (("stages",), 4),
        (("stages", 0), 5),
        (("stages", 0, "devices"), 7),
        (("stages", 0, "env", "A"), 3),
        (("stages", 1, "devices"), 2),
        (("stages", 9, "devices"), 4),
        (("stages", 0, "nothing"), 5),
    ):
        assert document.place(path).line == line, path


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(FileUnreadable) as refused:
            load(path)
        assert str(refused.value) == f"{path}: cannot be read: {why}"


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 1_000,
        b"a: " * 1_000,
        b"&a [*a]",
        b"a: !!binary x",
        b"a: !!set {b}",
        b"? [a]\n: b",
        b"? {a: b}\n: c",
        b"<<: [1]",
        b"<<: x",
        b"a: *b",
        b"\x00",
        b"a: \xff",
        "a: b".encode("utf-16")[:-1],
        b"a: !!int x",
        b"a: !!timestamp x",
        b"a: 2026-13-99",
        b"%YAML 9.9\n---\na: b",
        b"x" * ((1 << 20) + 1),
    ],
    ids=lambda raw: repr(raw[:16]),
)
def test_whatever_it_is_it_is_refused(raw: bytes) -> None:
    with pytest.raises(TopologyInvalid) as refused:
        parse(raw, "f")
    assert len(refused.value.faults) == 1
    assert "\n" not in str(refused.value)
