"""With `-n`: which tests stay in one process, one behind the other.

Real engines want the cores while they start, and some are started once for the whole run: all their tests are one
group, and the first, since nothing takes longer. Of the other contracts each folder is a group, of all else each file.
"""

from __future__ import annotations

from typing import Any

import pytest

ENGINES = (
    "tests/e2e/",
    "tests/contract/engine/",
    "tests/contract/talker/test_start.py",
    "tests/conformance/test_completions.py",
    "tests/conformance/test_openai_python.py",
    "tests/conformance/test_real.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(ENGINES))


def group_of(nodeid: str) -> str:
    """Of a test by its id, `tests/unit/test_x.py::test_y[z]`."""
    if nodeid.startswith(ENGINES):
        return "engines"
    file, _, _ = nodeid.partition("::")
    return file.rpartition("/")[0] if file.startswith("tests/contract/") else file
