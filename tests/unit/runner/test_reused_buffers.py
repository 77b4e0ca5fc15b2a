"""Models that hand over, or answer in, buffers that they fill anew for the next rows: each row keeps its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engines.runner.errors import HookResultInvalid
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import HIDDEN, Talker
from tests.unit.runner.test_contract import Make, arrive, fed


class Scratch(Talker):
    """Its hooks return one buffer for each thing, whatever row it is for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scratch: dict[str, torch.Tensor] = {}

    def _reused(self, name: str, value: torch.Tensor) -> torch.Tensor:
        room = self._scratch.setdefault(name, torch.zeros(64, *value.shape[1:], dtype=value.dtype))
        return room[: len(value)].copy_(value)

    def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
        ids, embeds, updates = super().preprocess(input_ids, input_embeds, **info)
        if "mtp_inputs" in updates:
            last, text = updates["mtp_inputs"]
            updates["mtp_inputs"] = self._reused("last", last), self._reused("text", text)
        return self._reused("ids", ids), self._reused("embeds", embeds), updates

    def _decode_batch(self, **told: Any) -> Any:
        ids, embeds, last, text, updates = super()._decode_batch(**told)
        named = {"ids": ids, "embeds": embeds, "last": last, "text": text}
        return (*(self._reused(name, value) for name, value in named.items()), updates)


@pytest.mark.parametrize("batched", [False, True])
def test_what_a_hook_hands_over_is_copied_at_once(stage: Make, batched: bool) -> None:
    """The prompt row between the two makes them two batches for `preprocess_decode_batch`."""
    s = stage(Scratch(batched=batched))
    a, b = arrive(s, "a", 3, decoded=1), arrive(s, "b", 4, decoded=3)
    arrive(s, "p", 5)
    ran = s.step(("a", 4, 1), ("p", 0, 2), ("b", 7, 1))
    assert (s.codes("a"), s.codes("b")) == (a.codes[4], b.codes[7])
    assert (fed(ran, "a"), fed(ran, "b")) == ([a.rows[4]], [b.rows[7]])


class Static(Talker):
    """Its `talker_mtp` answers in one buffer, as a captured graph does."""

    def __post_init__(self) -> None:
        self.talker_mtp = self._static
        self._rows, self._codes = torch.zeros(8, HIDDEN), torch.zeros(8, 3, dtype=torch.long)

    def _static(self, *inputs: torch.Tensor, generator: Any = None) -> Any:
        rows, codes = self._mtp(*inputs)
        count = len(rows)
        return self._rows[:count].copy_(rows), self._codes[:count].copy_(codes)


@pytest.mark.parametrize("extra", [{}, {"tts_local_seed": 1}], ids=["together", "alone"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_seeded_rows_that_go_alone_keep_their_own_answers(order: str, extra: dict[str, Any]) -> None:
    s = Stage(model=Static())
    references = {"a": arrive(s, "a", 3, decoded=0), "b": arrive(s, "b", 4, decoded=0)}
    for name in order:
        s.requests[name].extra_args = extra
        s.runner.model_intermediate_buffer[name]["sampling_extra_args"] = extra
    places = {"a": 3, "b": 4}
    s.model.mtp_batches.clear()
    ran = s.step(*((name, places[name], 1) for name in order))
    assert len(s.model.mtp_batches) == (2 if extra else 1)
    for name, reference in references.items():
        assert s.codes(name) == reference.codes[places[name]]
        assert fed(ran, name) == [reference.rows[places[name]]]


class Meddler(Talker):
    """Does what no hook should with what it is given."""

    def preprocess_batch(self, *, req_ids: Any, model_intermediate_buffer: Any, **_: Any) -> None:
        for name in req_ids:
            model_intermediate_buffer[name]["sampling_extra_args"] = None

    def _decode_batch(self, *, input_ids: torch.Tensor, req_infos: Any) -> Any:
        result = super()._decode_batch(input_ids=input_ids, req_infos=req_infos)
        for info in req_infos:
            info.pop("sampling_extra_args")
        req_infos.clear()
        return result


@pytest.mark.parametrize("batched", [False, True])
def test_what_a_hook_takes_away_is_missed_by_nobody(batched: bool) -> None:
    s = Stage(model=Meddler(batched=batched))
    reference = arrive(s, "a", 3, decoded=2)
    assert s.codes("a") == reference.codes[4]


class Shaped(Talker):
    """Its hooks' results go through `change`: what MTP needs besides, and ids."""

    change: Any = staticmethod(lambda tensor: tensor)
    change_ids: Any = staticmethod(lambda tensor: tensor)

    def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
        ids, embeds, updates = super().preprocess(input_ids, input_embeds, **info)
        if "mtp_inputs" in updates:
            updates["mtp_inputs"] = tuple(self.change(one) for one in updates["mtp_inputs"])
        return self.change_ids(ids), embeds, updates

    def _decode_batch(self, **told: Any) -> Any:
        ids, embeds, last, text, updates = super()._decode_batch(**told)
        return self.change_ids(ids), embeds, self.change(last), text, updates


def two_rows(batched: bool, **changes: Any) -> None:
    """Two decode rows, with these changes; their codes are right if nothing is raised."""
    s = Stage(model=Shaped(batched=batched))
    a, b = arrive(s, "a", 3, decoded=0), arrive(s, "b", 4, decoded=0)
    for name, change in changes.items():
        setattr(s.model, name, change)
    s.step(("a", 3, 1), ("b", 4, 1))
    assert (s.codes("a"), s.codes("b")) == (a.codes[3], b.codes[4])


@pytest.mark.parametrize("batched", [False, True])
def test_as_many_numbers_in_another_shape_are_other_rows(batched: bool) -> None:
    two_rows(batched, change=lambda t: t.unsqueeze(1))
    with pytest.raises(HookResultInvalid, match=r"expected .*\[(1|2), 4\]"):
        two_rows(batched, change=lambda t: t.T.contiguous() if batched else t.reshape(2, 2))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_ids_are_integers(batched: bool, dtype: torch.dtype) -> None:
    two_rows(batched, change_ids=lambda t: t.long())
    with pytest.raises(HookResultInvalid, match=r"ids are integers"):
        two_rows(batched, change_ids=lambda t: t.to(dtype))
