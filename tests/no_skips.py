"""Under CI a skipped test is a failure: what cannot be checked must not look as if it had been.

Free of it are tests marked `gpu`, and those marked `optional`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

FREE = ("gpu", "optional")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.skipped and forbidden(os.environ, item) and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped under CI, where only tests marked {' or '.join(FREE)} may be: {why}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A whole module that skips itself has no mark to free it."""
    report: Any = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} skips itself under CI: {report.longrepr[2]}"
    return report


def forbidden(environ: Any, item: pytest.Item) -> bool:
    return bool(environ.get("CI")) and not any(item.get_closest_marker(name) for name in FREE)
