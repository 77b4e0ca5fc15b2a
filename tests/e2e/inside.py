"""A file of tests that runs in a network namespace of its own, by one run of pytest inside; what became of each."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.own_network import why_not, within_own_network

ROOT = Path(__file__).parents[2]
WITHIN = 800
"""Seconds for all tests of a file. Two minutes on two quiet cores."""


def names_of(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if name.startswith("test_")]


def run_mooncake_inside(module: ModuleType, directory: Path) -> Mapping[str, str]:
    """What each test of the file came to: `passed`, or what it said. Skips where Mooncake cannot be had."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    pytest.importorskip("mooncake", reason="Mooncake is not installed: make install ENGINES=cpu")
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError:
        pytest.skip("Mooncake needs libibverbs.so.1, Debian's libibverbs1: make test installs it as root")
    if reason := why_not():
        pytest.skip(reason)
    report = directory / "report.xml"
    run = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", str(module.__file__)]
    options = [f"--basetemp={directory / 'tmp'}", f"--junit-xml={report}"]
    with (directory / "output").open("w+") as output:
        command = within_own_network([*run, *options])
        subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, timeout=WITHIN, check=False)
        output.seek(0)
        said = output.read()
    assert report.exists(), said
    print(said)
    return {case.get("name", ""): _outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def _outcome(case: ElementTree.Element) -> str:
    """A test that did not pass has a child that says so."""
    return "\n".join(part.text or part.tag for part in case if not part.tag.startswith("system-")) or "passed"
