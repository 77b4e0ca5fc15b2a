"""Mooncake on real vLLM. Its transfer engine and its bootstrap server listen on all interfaces, so everything runs in a
network namespace of its own: `mooncake_inside.py` has the tests, one run of pytest inside does them all, and here
stands what became of each.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e import mooncake_inside
from tests.own_network import why_not, within_own_network

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

INSIDE = Path(mooncake_inside.__file__)
TESTS = [name for name in vars(mooncake_inside) if name.startswith("test_")]
WITHIN = 800
"""Seconds for all of them. Two minutes on two quiet cores."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What each test inside came to: `passed`, or what it said."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    pytest.importorskip("mooncake", reason="Mooncake is not installed: make install ENGINES=cpu")
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError:
        pytest.skip("Mooncake needs libibverbs.so.1, Debian's libibverbs1: make test installs it as root")
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("inside")
    report = directory / "report.xml"
    run = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", str(INSIDE)]
    options = [f"--basetemp={directory / 'tmp'}", f"--junit-xml={report}"]
    with (directory / "output").open("w+") as output:
        command = within_own_network([*run, *options])
        subprocess.run(command, cwd=INSIDE.parents[2], stdout=output, stderr=output, timeout=WITHIN, check=False)
        output.seek(0)
        said = output.read()
    assert report.exists(), said
    print(said)
    return {case.get("name", ""): outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def outcome(case: ElementTree.Element) -> str:
    """A test that did not pass has a child that says so."""
    return "\n".join(part.text or part.tag for part in case if not part.tag.startswith("system-")) or "passed"


@pytest.mark.parametrize("name", TESTS)
def test_in_a_network_of_its_own(outcomes: Mapping[str, str], name: str) -> None:
    assert outcomes.get(name) == "passed", outcomes.get(name, "it did not run")
