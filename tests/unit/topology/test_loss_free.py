"""The expansion loses nothing: every setting of three stages is found in the four, or named as overridden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from common.topology.expand import Expansion, How, expand
from common.topology.read import read
from common.topology.write import as_document
from tests.unit.topology.files import QWEN, topology

MOVED = {0: (0, 1), 1: (2,), 2: (3,)}
"""Where each of three stages is in the four."""
ENGINE = {
    "max_num_seqs": st.integers(1, 512),
    "max_num_batched_tokens": st.integers(1, 65536),
    "max_model_len": st.integers(-1, 65536),
    "gpu_memory_utilization": st.sampled_from([0.1, 0.25, 0.3]),
    "enforce_eager": st.booleans(),
    "enable_chunked_prefill": st.booleans(),
    "moe_backend": st.sampled_from(["triton", "auto"]),
    "compilation_config": st.fixed_dictionaries({"custom_ops": st.lists(st.sampled_from(["+a", "-b"]), max_size=2)}),
    "hf_overrides": st.just({"quantization_config": None}),
    "limit_mm_per_prompt": st.dictionaries(st.sampled_from(["audio", "image"]), st.integers(1, 8)),
    "async_scheduling": st.none() | st.booleans(),
    "env": st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers() | st.booleans() | st.text(max_size=3)),
    "default_sampling_params": st.dictionaries(
        st.sampled_from(["temperature", "top_p", "seed"]), st.floats(0, 1, allow_subnormal=False), max_size=3
    ),
    "engine_args": st.fixed_dictionaries({}, optional={"block_size": st.sampled_from([16, 32])}),
}
SETTINGS = st.fixed_dictionaries({}, optional=ENGINE)


def connectors(stage: int) -> st.SearchStrategy[dict[str, Any]]:
    ends: dict[str, Any] = {}
    if stage > 0:
        ends["input_connectors"] = st.just({f"from_stage_{stage - 1}": "shm"})
    if stage < 2:
        ends["output_connectors"] = st.just({f"to_stage_{stage + 1}": "shm"})
    return st.fixed_dictionaries({}, optional=ends)


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    def stage(id_: int, ends: bool = True) -> dict[str, Any]:
        return {"stage_id": id_, **draw(SETTINGS), **(draw(connectors(id_)) if ends else {})}

    stages = [{**stage(id_), "devices": str(id_)} for id_ in range(3)]
    sides = st.fixed_dictionaries({}, optional={"prefill": SETTINGS, "decode": SETTINGS})
    if draw(st.booleans()):
        stages[0]["pd"] = draw(sides)
    values: dict[str, Any] = {
        "stages": stages,
        "connectors": {"shm": {"name": "Shm", "extra": {"a": [1, {"b": None}]}}},
    }
    values |= draw(st.fixed_dictionaries({}, optional={"async_chunk": st.booleans(), "dtype": st.just("bfloat16")}))
    if draw(st.booleans()):
        values["edges"] = [{"from": 0, "to": 1, "window_size": -1}, {"from": 1, "to": 2}]
    entries = draw(st.lists(st.sampled_from([0, 1, 2]), unique=True))
    values["platforms"] = {"rocm": {"stages": [stage(id_, ends=False) for id_ in entries]}}
    return values


def lost(values: dict[str, Any], expansion: Expansion) -> Iterator[str]:
    """Settings of the file that the plan has not."""
    plan = as_document(expansion.topology)
    stages = {stage["stage_id"]: stage for stage in plan["stages"]}
    for name, value in values.items():
        if name not in ("stages", "platforms", "edges") and plan.get(name) != value:
            yield name
    shift = {0: 1, 1: 2, 2: 3}
    for edge in values.get("edges", ()):
        if {**edge, "from": shift[edge["from"]], "to": shift[edge["to"]]} not in plan["edges"]:
            yield f"edge {edge}"
    for stage in values["stages"]:
        yield from of_stage(stage, stages, expansion, None)
    for platform, entry in values.get("platforms", {}).items():
        entries = {e["stage_id"]: e for e in plan.get("platforms", {}).get(platform, {}).get("stages", ())}
        for stage in entry["stages"]:
            yield from of_stage(stage, entries, expansion, platform)


def of_stage(stage: dict[str, Any], plan: dict[int, Any], expansion: Expansion, platform: str | None) -> Iterator[str]:
    flat = {**stage, **stage.get("engine_args", {})}
    old = flat["stage_id"]
    for name in set(flat) - {"stage_id", "pd", "engine_args"}:
        for new in MOVED[old] if name != "output_connectors" else MOVED[old][-1:]:
            found = plan.get(new, {}).get(name)
            if found != moved(name, flat[name]) and not overridden(expansion, new, name, flat[name], platform):
                yield f"{platform or 'stage'} {old} -> {new}: {name}: {flat[name]!r}, now {found!r}"
    for side, new in (("prefill", 0), ("decode", 1)):
        for name, value in flat_side(stage, side).items():
            found = plan[new].get(name)
            if found != value and not (isinstance(value, dict) and value.items() <= (found or {}).items()):
                yield f"pd.{side}.{name}: {value!r}, now {found!r}"


def flat_side(stage: dict[str, Any], side: str) -> dict[str, Any]:
    own = stage.get("pd", {}).get(side, {})
    return {**{name: v for name, v in own.items() if name != "engine_args"}, **own.get("engine_args", {})}


def moved(name: str, value: Any) -> Any:
    """A setting as it must look in the four."""
    if name == "input_connectors":
        return {f"from_stage_{int(end[-1]) + 1}": target for end, target in value.items()}
    if name == "output_connectors":
        return {f"to_stage_{int(end[-1]) + 1}": target for end, target in value.items()}
    return value


def overridden(expansion: Expansion, stage: int, name: str, was: Any, platform: str | None) -> bool:
    return any(
        (note.stage, note.name, note.platform) == (stage, name, platform)
        and note.was == was
        and note.how in (How.OVERRIDDEN, How.CHOSEN)
        for note in expansion.notes
    )


@settings(max_examples=60, deadline=None)
@given(files())
def test_every_setting_is_found_or_named(values: dict[str, Any]) -> None:
    assert list(lost(values, expand(topology(values)))) == []


def test_the_check_finds_what_is_lost() -> None:
    values = {"stages": [{"stage_id": i, "devices": str(i), "max_num_seqs": 8} for i in range(3)]}
    less = {"stages": [{name: v for name, v in s.items() if name != "max_num_seqs"} for s in values["stages"]]}
    assert len(list(lost(values, expand(topology(less))))) == 4


def test_of_the_real_file() -> None:
    import yaml

    assert list(lost(yaml.safe_load(QWEN.read_text()), expand(read(QWEN)))) == []
