"""What a deploy file may say, and the type of each value: vLLM-Omni's shape, with `pd:` and a few names of Duet's own.

    File
    ├── stages: [Stage]            Stage    = Settings + id, place in the pipeline, stage connectors, pd
    │   └── pd: Pd                 Pd       = connector, lease, expected_queueing, prefill: Settings, decode: Settings
    └── platforms: {Platform}      Platform = [PlatformStage]   (Settings for one kind of machine)

`Settings` is what an engine is run with: placement, sampling defaults and every engine argument of vLLM's by its own
name. The arguments that an invariant looks at have types here; the others are vLLM's to judge.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from common.topology.fault import Path
from common.topology.names import (
    ENGINE_ARGS,
    KV_TRANSFER,
    KV_TRANSFER_BEFORE,
    OMNI_ARGS,
    PLATFORMS,
    SAMPLING_PARAMS,
)


def _one_of(*known: frozenset[str] | dict[str, str]) -> AfterValidator:
    names = frozenset().union(*known)

    def check(name: str) -> str:
        if name not in names:
            raise PydanticCustomError("unknown_key", "unknown key", {"known": sorted(names)})
        return name

    return AfterValidator(check)


def _as_text(value: object) -> object:
    """A single device is easily written without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _scalar(value: object) -> object:
    if isinstance(value, str | int | float | bool):
        return value
    raise PydanticCustomError("scalar_type", "expected text, a number, true or false")


EngineArg = Annotated[str, _one_of(ENGINE_ARGS, OMNI_ARGS)]
Devices = Annotated[str, BeforeValidator(_as_text), Field(pattern=r"^\s*(cpu|[\w.:/-]+(\s*,\s*[\w.:/-]+)*)\s*$")]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
Sampling = dict[Annotated[str, _one_of(SAMPLING_PARAMS)], Any]
Scalar = Annotated[Any, BeforeValidator(_scalar)]
Env = dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Scalar]
From = dict[Annotated[str, Field(pattern=r"^from_stage_\d+$")], str]
To = dict[Annotated[str, Field(pattern=r"^to_stage_\d+$")], str]
Output = Literal["text", "audio"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class KvTransfer(Strict):
    """vLLM's `kv_transfer_config`; what is in `kv_connector_extra_config` is the connector's own affair."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[Annotated[str, _one_of(KV_TRANSFER, KV_TRANSFER_BEFORE)], Any] = Field(init=False)
    kv_connector: str | None = None
    kv_role: str | None = None
    kv_buffer_device: str | None = None
    kv_buffer_size: float | None = None
    kv_connector_extra_config: dict[str, Any] = {}


class EngineArgs(Strict):
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[EngineArg, Any] = Field(init=False)
    model: str | None = None
    revision: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    load_format: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: str | None = None
    tensor_parallel_size: Count | None = None
    pipeline_parallel_size: Count | None = None
    data_parallel_size: Count | None = None
    block_size: Count | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_model_len: Annotated[int, Field(ge=-1)] | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    enforce_eager: bool | None = None
    trust_remote_code: bool | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    compilation_config: dict[str, Any] | None = None
    hf_overrides: dict[str, Any] | None = None
    kv_transfer_config: KvTransfer | None = None


class Runtime(Strict):
    """An older spelling, which vLLM-Omni takes too."""

    devices: Devices | None = None
    num_replicas: Count | None = None
    env: Env | None = None


class Settings(EngineArgs):
    """What one engine is run with. `port` and `side_port` are Duet's own: the first replica's; others count up."""

    devices: Devices | None = None
    num_replicas: Count | None = None
    env: Env | None = None
    async_chunk: bool | None = None
    default_sampling_params: Sampling | None = None
    default_pooling_params: dict[str, Any] | None = None
    subtalker_sampling_params: dict[str, Any] | None = None
    engine_args: EngineArgs | None = None
    engine_extras: EngineArgs | None = None
    runtime: Runtime | None = None
    port: Port | None = None
    side_port: Port | None = None

    NESTED: ClassVar = ("engine_args", "engine_extras", "runtime")

    @model_validator(mode="before")
    @classmethod
    def _once(cls, values: Any) -> Any:
        """A setting stands flat or in one of the nested blocks, not in two of them: which would win is a guess."""
        if isinstance(values, dict):
            stands = dict.fromkeys(set(values) - set(cls.NESTED), "here")
            for block in (name for name in cls.NESTED if isinstance(values.get(name), dict)):
                for name in values[block]:
                    if name in stands:
                        raise PydanticCustomError(
                            "twice",
                            "{name} stands {where} and in {block}; expected it once",
                            {"name": name, "where": stands[name], "block": block},
                        )
                    stands[name] = f"in {block}"
        return values


class Sides(Strict):
    """What only one side of a split is run with, over what both have from the Thinker."""

    prefill: Settings | None = None
    decode: Settings | None = None


class Pd(Sides):
    """The split. `lease` is how long prefill keeps KV that nobody fetched, `expected_queueing` how long a request may
    wait for decode between the two; both in seconds."""

    connector: str | None = None
    lease: Annotated[float, Field(gt=0)] | None = None
    expected_queueing: Annotated[float, Field(ge=0)] | None = None


class Stage(Settings):
    stage_id: Annotated[int, Field(ge=0)]
    model_stage: Literal["thinker", "talker", "code2wav"] | None = None
    engine_input_source: list[int] | None = None
    is_prefill_only: bool | None = None
    is_decode_only: bool | None = None
    final_output: bool | None = None
    final_output_type: Output | None = None
    input_connectors: From | None = None
    output_connectors: To | None = None
    pd: Pd | None = None


class PlatformStage(Settings):
    stage_id: Annotated[int, Field(ge=0)]
    pd: Sides | None = None


class Platform(Strict):
    model_runner: Literal["v1", "v2"] | None = None
    stages: list[PlatformStage] = []


class StageConnector(Strict):
    """What carries rows and codes from stage to stage; nothing to do with the KV connector."""

    name: str
    extra: dict[str, Any] = {}


class Edge(Strict):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_alias=True)
    source: Annotated[int, Field(alias="from")]
    to: int
    window_size: int | None = None
    max_inflight: int | None = None


class File(Strict):
    stages: list[Stage]
    pipeline: str | None = None
    model: str | None = None
    revision: str | None = None
    served_model_name: str | None = None
    async_chunk: bool | None = None
    session_mode: str | None = None
    model_runner: Literal["v1", "v2"] | None = None
    active_stream_window: Annotated[int, Field(ge=0)] | None = None
    trust_remote_code: bool | None = None
    distributed_executor_backend: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    data_parallel_size: Count | None = None
    pipeline_parallel_size: Count | None = None
    connectors: dict[str, StageConnector] | None = None
    edges: list[Edge] | None = None
    platforms: dict[Annotated[str, _one_of(PLATFORMS)], Platform] | None = None


ENGINE_WIDE = (
    *("model", "revision", "served_model_name", "trust_remote_code", "distributed_executor_backend", "dtype"),
    *("quantization", "enable_prefix_caching", "enable_chunked_prefill", "data_parallel_size"),
    "pipeline_parallel_size",
)
"""Keys of a file that are engine arguments of all its stages; a stage's own beats them."""


def schema_at(path: Path) -> type[BaseModel] | None:
    """The schema of the mapping at a path; None where any key may stand."""
    kind: Any = File
    for step in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
            kind = fields.get(str(step), Any)
        else:
            kind = get_args(kind)[-1] if get_args(kind) else Any
        kind = _bare(kind)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _bare(kind: Any) -> Any:
    """Without `| None` and `Annotated`."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def keys_of(model: type[BaseModel]) -> frozenset[str]:
    """The keys that may stand in a mapping of this schema."""
    named = {field.alias or name for name, field in model.model_fields.items()}
    if issubclass(model, EngineArgs):
        named |= ENGINE_ARGS | OMNI_ARGS
    if issubclass(model, KvTransfer):
        named |= KV_TRANSFER | KV_TRANSFER_BEFORE
    return frozenset(named)
