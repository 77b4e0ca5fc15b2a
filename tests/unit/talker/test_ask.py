"""What speech is asked with: refused by field, and what is accepted is what vLLM accepts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from common.errors import BadRequest
from engines.talker.ask import MAX_SEED, MAX_TOP_K, Ask
from engines.talker.request import Residual, Speech

CONFIG = SimpleNamespace(codec_eos_token_id=91, speaker_id={"ethan": 92})
BARE: dict[str, Any] = {"request_id": "r", "conditioning": ["duet+tcp://h:1?request=r&stage=s"]}
LEAST = 5e-324
"""Above 0."""
ROOM = 40

EDGES = {
    "temperature": ((0, LEAST, 2), (-LEAST, 2.0000001)),
    "top_k": ((0, 1, MAX_TOP_K), (-1, MAX_TOP_K + 1, 2**70)),
    "top_p": ((LEAST, 1), (0, 1.0000001)),
    "repetition_penalty": ((LEAST, 10), (0, 10.000001)),
    "seed": ((0, MAX_SEED), (-1, MAX_SEED + 1)),
    "max_frames": ((1, ROOM - 1, ROOM, 2**70), (0,)),
    "residual.temperature": ((0, LEAST, 10), (-LEAST, 10.000001)),
    "residual.top_k": ((0, 1, MAX_TOP_K), (-1, MAX_TOP_K + 1, 2**70)),
    "residual.top_p": ((LEAST, 1), (0, 1.0000001)),
}
"""Of each field what is just accepted, and what is just refused."""
ACCEPTED = [(field, value) for field, (good, _) in EDGES.items() for value in good]
REFUSED = [(field, value) for field, (_, bad) in EDGES.items() for value in bad]


def with_field(field: str, value: Any) -> bytes:
    body = dict(BARE)
    outer, _, inner = field.rpartition(".")
    body.update({outer: {inner: value}} if outer else {inner: value})
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", None),
        (b"{", None),
        (b"[" * 200_000, None),
        (b'{"speaker":' * 200_000, None),
        (b"\xff", None),
        (b'{"request_id": "r"}', "conditioning"),
        (b'{"request_id": "r", "conditioning": []}', "conditioning"),
        (with_field("sed", 1), "sed"),
        (with_field("residual.temprature", 1), "residual.temprature"),
        (with_field("temperature", "hot"), "temperature"),
        (with_field("residual.temperature", None), "residual.temperature"),
        (with_field("top_k", 1.5), "top_k"),
        *((with_field(field, value), field) for field, value in REFUSED),
    ],
)
def test_a_body_is_refused_by_field(body: bytes, field: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        Ask.read(body)
    assert caught.value.param == field


def test_every_field_that_is_a_number_has_its_edges_here() -> None:
    ask = Ask.model_fields
    own = set(ask) - {"request_id", "conditioning", "speaker", "residual"}
    residual = {f"residual.{name}" for name in Residual.__dataclass_fields__}
    assert own | residual == set(EDGES)


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_what_is_accepted_vllm_accepts(field: str, value: Any) -> None:
    """And it travels to the engine: that is msgpack, whose numbers have 64 bits."""
    pytest.importorskip("vllm")
    from vllm import SamplingParams
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    ask = Ask.read(with_field(field, value))
    params = ask.sampling(CONFIG, ROOM)
    got = MsgpackDecoder(SamplingParams).decode(MsgpackEncoder().encode(params))
    assert (got.top_k, got.seed, got.max_tokens) == (params.top_k, ask.seed, min(ask.max_frames + 1, ROOM))
    assert Speech.of(got.extra_args) == ask.speech(CONFIG)


def test_what_vllm_refuses_all_the_same_is_a_bad_request_with_its_field() -> None:
    """Whoever builds vLLM may bound what we do not know of."""
    pytest.importorskip("vllm")
    hot = Ask.read(with_field("temperature", 1)).model_copy(update={"temperature": 3.0})
    with pytest.raises(BadRequest, match=r"temperature must be in \[0, 2\]") as caught:
        hot.sampling(CONFIG, ROOM)
    assert caught.value.param == "temperature"
    penal = Ask.read(with_field("repetition_penalty", 1)).model_copy(update={"repetition_penalty": -1.0})
    with pytest.raises(BadRequest, match="repetition_penalty must be greater than zero") as caught:
        penal.sampling(CONFIG, ROOM)
    assert caught.value.param is None


@pytest.mark.parametrize(
    ("temperature", "residual", "expected"),
    [
        (None, None, Residual()),
        (0.5, {}, Residual()),
        (0.5, {"top_k": 5}, Residual(top_k=5)),
        (0, None, Residual(temperature=0.0)),
        (0, {}, Residual(temperature=0.0)),
        (0, {"top_k": 5}, Residual(temperature=0.0, top_k=5)),
        (0, {"temperature": 0.5}, Residual(temperature=0.5)),
        (0.5, {"temperature": 0, "top_p": 0.5}, Residual(temperature=0.0, top_p=0.5)),
    ],
)
def test_greedy_is_temperature_zero_for_all_groups_unless_told(
    temperature: float | None, residual: dict[str, Any] | None, expected: Residual
) -> None:
    told = {name: value for name, value in (("temperature", temperature), ("residual", residual)) if value is not None}
    assert Ask.read(json.dumps(BARE | told).encode()).speech(CONFIG).residual == expected
