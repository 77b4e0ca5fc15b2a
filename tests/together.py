"""With `-n`: which tests stay in one process, one behind the other (pytest-xdist's groups).

Real engines want the cores while they start, and some are started once for a whole folder: all their tests are one
group, and the first, since nothing takes longer. Of the contracts each folder is one, of the others each file.
"""

from __future__ import annotations

import pytest

ENGINES = "engines"
WITH_ENGINES = ("tests/e2e/", "tests/conformance/", "tests/contract/engine/")
"""Where tests that are marked `vllm` ask engines over HTTP; elsewhere they use its code."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: groups[item] != ENGINES)


def _group(item: pytest.Item) -> str:
    where = item.path.relative_to(item.config.rootpath)
    if item.get_closest_marker("vllm") and where.as_posix().startswith(WITH_ENGINES):
        return ENGINES
    return (where.parent if where.is_relative_to("tests/contract") else where).as_posix()
