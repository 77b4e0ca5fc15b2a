"""`docs/topology.md`: every key and every rule is in it, and the file in it is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from common.topology import TopologyInvalid, plan
from common.topology.expand import expand
from common.topology.invariants import check
from common.topology.schema import EngineArgs, File, Pd, Stage
from common.topology.sides import SAME
from tests.unit.topology.files import ROOT, topology
from tests.unit.topology.test_broken import BROKEN

PAGE = (ROOT / "docs" / "topology.md").read_text()
NAMES = set(re.findall(r"`([\w.]+)`", PAGE))


def test_every_key_is_in_it() -> None:
    of_stage = set(Stage.model_fields) - set(EngineArgs.model_fields)
    assert {*File.model_fields, *of_stage, *Pd.model_fields} - NAMES == set()


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_the_rule_is_in_it(file: Path) -> None:
    with pytest.raises(TopologyInvalid) as refused:
        plan(file)
    assert refused.value.faults[0].rule in NAMES


def test_rules_of_a_pair_are_in_it() -> None:
    assert {f"pair.{name}" for name in SAME} - NAMES == set()


def test_its_file_is_one() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    it = expand(topology(yaml.safe_load(text))).topology
    check(it)
    assert [stage.settings.get("devices") for stage in it] == ["0,3", "4", "1", "2"]
