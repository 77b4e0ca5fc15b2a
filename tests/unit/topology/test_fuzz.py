"""Whatever stands in a file, it is a plan or it is refused: with a fault that has a line, never with a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from common.topology import TopologyInvalid, engines
from common.topology.document import parse
from common.topology.expand import expand
from common.topology.invariants import check
from common.topology.read import of
from common.topology.schema import File, keys_of
from common.topology.schema import Stage as StageSchema
from common.topology.write import as_document
from tests.unit.topology.files import QWEN, four, kv, three

SEEDS = [yaml.safe_load(QWEN.read_text()), four(kv("kv_both")), three(pd={"lease": 5, "decode": {"devices": "7"}})]
KEYS = st.sampled_from(sorted(keys_of(StageSchema) | keys_of(File))) | st.text(max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats()
    | st.sampled_from(["0", "0,1", "cpu", "", "kv_both", "Multi(", "from_stage_0", "thinker", "9" * 400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(value, dict):
        for name in value:
            yield from paths(value[name], (*at, name))
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from paths(item, (*at, i))


@st.composite
def changed(draw: st.DrawFn) -> Any:
    values = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(list(paths(values))[1:]))
        inside = values
        for step in path:
            inside = inside[step]
        if isinstance(inside, dict) and draw(st.booleans()):
            last = draw(KEYS)
        inside[last] = draw(VALUES)
    return values


@settings(max_examples=200, deadline=None)
@given(changed())
def test_it_is_a_plan_or_refused(values: Any) -> None:
    raw = yaml.safe_dump(values, sort_keys=False).encode()
    try:
        topology = of(parse(raw, "f"))
        split = expand(topology).topology
        for it in (topology, split):
            check(it)
            engines(it)
            as_document(it)
    except TopologyInvalid as e:
        assert e.faults
        assert all("\n" not in str(fault) and fault.place.line is not None for fault in e.faults), str(e)
