"""The lists of names, held against the vLLM that is installed."""

from __future__ import annotations

from dataclasses import fields

from common.topology.names import ENGINE_ARGS, KV_TRANSFER, KV_TRANSFER_BEFORE, SAMPLING_PARAMS, nearest
from tests.unit.topology.files import with_vllm


@with_vllm
def test_engine_arguments_are_vllms() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert {field.name for field in fields(AsyncEngineArgs) if not field.name.startswith("_")} == ENGINE_ARGS


@with_vllm
def test_sampling_parameters_are_vllms() -> None:
    from vllm import SamplingParams

    assert set(SamplingParams.__struct_fields__) >= SAMPLING_PARAMS


@with_vllm
def test_kv_transfer_fields_are_vllms() -> None:
    from vllm.config import KVTransferConfig

    assert {field.name for field in fields(KVTransferConfig)} == KV_TRANSFER
    assert not KV_TRANSFER & KV_TRANSFER_BEFORE


def test_the_nearest_name() -> None:
    assert nearest("max-num-seq", ENGINE_ARGS) == "max_num_seqs"
    assert nearest("TensorParallelSize", ENGINE_ARGS) == "tensor_parallel_size"
    assert nearest("zzz", ENGINE_ARGS) is None
