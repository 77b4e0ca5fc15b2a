"""Every metric is in the table that says what to do about it."""

from __future__ import annotations

import re

from gateway.telemetry import Metrics, metrics


def test_the_table_lists_every_metric_and_no_other() -> None:
    listed = set(re.findall(r"^\| `(duet_\w+)", metrics.__doc__ or "", re.MULTILINE))
    named = set()
    for family in Metrics().registry.collect():
        named.add(f"{family.name}_total" if family.type == "counter" else family.name)
    assert listed == named
