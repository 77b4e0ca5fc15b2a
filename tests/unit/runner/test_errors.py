"""What a model may do wrong: the error names the model, the request and the row, and nothing is emitted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engines.runner.errors import HookFailed, HookResultInvalid, MtpInputsMissing, PhaseError
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import HIDDEN, Talker
from tests.unit.runner.test_contract import arrive

ONE = torch.zeros(1, HIDDEN)


class Broken(Talker):
    """Does as told from the moment that `wrong` is set."""

    wrong: Any = None

    def preprocess(self, input_ids: torch.Tensor, input_embeds: Any, **info: Any) -> Any:
        found = super().preprocess(input_ids, input_embeds, **info)
        return found if self.wrong is None or info["request_id"] != "bad" else self.wrong(found)

    def _decode_batch(self, **told: Any) -> Any:
        found = super()._decode_batch(**told)
        return found if self.wrong is None else self.wrong(found)

    def _mtp(self, *told: torch.Tensor) -> Any:
        found = super()._mtp(*told)
        return found if self.wrong is None else self.wrong(found)


def raised(model: Broken, wrong: Any, expected: type[PhaseError]) -> PhaseError:
    """What a step of two decode rows raises, the second of them of the request `bad`."""
    s = Stage(model=model)
    arrive(s, "good", 3, decoded=1)
    arrive(s, "bad", 4, decoded=1)
    before = s.codes("good"), s.codes("bad")
    model.wrong = wrong
    with pytest.raises(expected) as error:
        s.step(("good", 4, 1), ("bad", 5, 1))
    assert (s.codes("good"), s.codes("bad")) == before, "no code came out of a step that failed"
    assert error.value.model == type(model).__name__
    return error.value


def boom(_: Any) -> Any:
    raise KeyError("text")


class Silent(Broken):
    def _mtp(self, *told: torch.Tensor) -> Any:
        return Talker._mtp(self, *told)


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (boom, HookFailed, r"preprocess raised KeyError: 'text'"),
        (
            lambda r: None,
            HookResultInvalid,
            r"preprocess returned NoneType; expected ids \[1\], embeddings \[1, 4\], up",
        ),
        (lambda r: r[:2], HookResultInvalid, r"returned \(a tensor \[1\], a tensor \[1, 4\]\)"),
        (lambda r: (r[0], r[1][:, :3], r[2]), HookResultInvalid, r"a tensor \[1, 3\], dict\); expected ids"),
        (lambda r: (r[0], torch.zeros(2, HIDDEN), r[2]), HookResultInvalid, r"a tensor \[2, 4\]"),
        (lambda r: (torch.zeros(2), r[1], r[2]), HookResultInvalid, r"\(a tensor \[2\], "),
        (lambda r: (r[0], r[1], None), HookResultInvalid, r", NoneType\)"),
        (lambda r: (r[0], r[1], {}), MtpInputsMissing, r"preprocess returned no mtp_inputs for a decode row"),
        (
            lambda r: (r[0], r[1], {"mtp_inputs": ONE}),
            HookResultInvalid,
            r"mtp_inputs is a tensor \[1, 4\]; expected two",
        ),
        (lambda r: (r[0], r[1], {"mtp_inputs": (ONE, ONE[:, :2])}), HookResultInvalid, r"two tensors \[1, 4\]"),
        (
            lambda r: (r[0], r[1], {**r[2], "steps": {"n": 1}}),
            HookResultInvalid,
            r"updates of preprocess: 'steps' is remembered as int; expected a dict",
        ),
    ],
)
def test_a_scalar_hook(wrong: Any, expected: type[PhaseError], said: str) -> None:
    error = raised(Silent(), wrong, expected)
    assert (error.requests, error.rows) == (("bad",), (1,))
    with pytest.raises(expected, match=rf"^model \w+, request bad \(row 1\): .*{said}"):
        raise error


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (boom, HookFailed, r"preprocess_decode_batch raised KeyError"),
        (
            lambda r: r[:4],
            HookResultInvalid,
            r"expected ids \[2\], embeddings \[2, 4\], last hidden and text step \[2, 4\]",
        ),
        (lambda r: (*r[:4], r[4][:1]), HookResultInvalid, r"2 updates"),
        (lambda r: (r[0], r[1], r[2][:1], *r[3:]), HookResultInvalid, r"a tensor \[1, 4\]"),
        (lambda r: None, HookResultInvalid, r"returned NoneType; expected"),
        (lambda r: (*r[:4], None), HookResultInvalid, r"NoneType\); expected .*, 2 updates"),
        (lambda r: (*r[:4], 2), HookResultInvalid, r"int\); expected"),
        (lambda r: (*r[:4], iter(r[4])), HookResultInvalid, r"list_iterator\); expected"),
        (lambda r: (*r[:4], [{}, None]), HookResultInvalid, r"list\); expected"),
        (lambda r: (*r[:3], None, r[4]), HookResultInvalid, r"NoneType, list\); expected"),
        (lambda r: (r[0], r[1], r[4]), HookResultInvalid, r"expected .* last hidden and text step \[2, 4\], 2 updates"),
        (
            lambda r: (*r[:4], [{}, {"steps": {"n": 1}}]),
            HookResultInvalid,
            r"'steps' is remembered as int; expected a dict",
        ),
    ],
)
def test_a_batched_hook(wrong: Any, expected: type[PhaseError], said: str) -> None:
    error = raised(Silent(batched=True), wrong, expected)
    if "remembered" in said:  # one row's fault
        assert (error.requests, error.rows) == (("bad",), (1,))
    else:
        assert (error.requests, error.rows) == (("good", "bad"), (0, 1))
    with pytest.raises(expected, match=rf"^model Silent, .*request bad \(row 1\): .*{said}"):
        raise error


class Mute(Broken):
    def preprocess(self, *told: Any, **info: Any) -> Any:
        return Talker.preprocess(self, *told, **info)


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (boom, HookFailed, r"talker_mtp raised KeyError"),
        (
            lambda r: r[0],
            HookResultInvalid,
            r"talker_mtp returned a tensor \[2, 4\]; expected embeddings \[2, 4\] and codes",
        ),
        (lambda r: (r[0][:1], r[1]), HookResultInvalid, r"a tensor \[1, 4\]"),
        (lambda r: (r[0], r[1][:1]), HookResultInvalid, r"a tensor \[1, 3\]"),
        (lambda r: (r[0], r[1][:, 0]), HookResultInvalid, r"codes \[2, groups\] or None"),
    ],
)
def test_mtp(wrong: Any, expected: type[PhaseError], said: str) -> None:
    error = raised(Mute(), wrong, expected)
    assert (error.requests, error.rows) == (("good", "bad"), (0, 1))
    with pytest.raises(expected, match=said):
        raise error


@pytest.mark.parametrize(
    ("result", "expected", "said"),
    [
        (boom, HookFailed, r"postprocess raised KeyError: 'text'"),
        (lambda _: [1], HookResultInvalid, r"postprocess returned list; expected updates or None"),
        (lambda _: ONE, HookResultInvalid, r"postprocess returned a tensor \[1, 4\]; expected"),
        (
            lambda span: {"last": ONE, "more": 1 if span == 3 else {"n": 1}},
            HookResultInvalid,
            r"updates of postprocess: 'more' is remembered as int",
        ),
    ],
)
def test_a_hook_behind_the_forward_pass(result: Any, expected: type[PhaseError], said: str) -> None:
    class After(Talker):
        def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
            return result(len(hidden))

    s = Stage(model=After())
    with pytest.raises(expected, match=rf"^model After, request r \(row 0\): {said}"):
        arrive(s, "r", 3, decoded=1)


def test_a_hook_behind_the_forward_pass_may_return_nothing() -> None:
    class Nothing(Talker):
        def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
            return None if info["_omni_is_prefill"] and len(hidden) == 2 else {"last": hidden[-1:]}

    s = Stage(model=Nothing())
    reference = arrive(s, "r", 3)
    s.step(("r", 0, 2))
    s.step(("r", 2, 1))
    s.requests["r"].output.append(100)
    s.step(("r", 3, 1))
    assert s.codes("r") == reference.codes[3]


def test_a_hook_at_the_end_names_who_ended_and_leaves_nothing_behind() -> None:
    class Grieving(Talker):
        def on_requests_finished(self, req_ids: Any) -> None:
            boom(req_ids)

    s = Stage(model=Grieving())
    arrive(s, "r", 3, decoded=1)
    with pytest.raises(
        HookFailed, match=r"^model Grieving, request r \(no row\): on_requests_finished raised KeyEr"
    ) as e:
        s.finish("r")
    assert (e.value.requests, e.value.rows) == (("r",), (None,))
    assert (s.runner.model_intermediate_buffer, s.runner.kept.fed) == ({}, {})


@pytest.mark.parametrize("batched", [False, True])
def test_codes_that_cannot_be_kept(batched: bool) -> None:
    class Hoarder(Talker):
        def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
            return {"last": hidden[-1:], "codes": hidden[-1:]}

    s = Stage(model=Hoarder(batched=batched))
    with pytest.raises(
        HookResultInvalid, match=r"request r \(row 0\): codes cannot be kept: 'codes' is remembered as T"
    ):
        arrive(s, "r", 3, decoded=1)


def test_codes_of_some_rows_only() -> None:
    """A model that is given its seeded rows one by one says something else of each."""

    class Fickle(Talker):
        def __post_init__(self) -> None:
            self.talker_mtp = self._fickle

        def _fickle(self, *inputs: Any, generator: Any = None) -> Any:
            rows, codes = self._mtp(*inputs)
            return rows, codes if generator is None else None

    s = Stage(model=Fickle())
    for name, extra in (("a", {}), ("b", {"tts_local_seed": 1})):
        arrive(s, name, 3)
        s.requests[name].extra_args = extra
        s.step((name, 0, 3))
        s.requests[name].output.append(100)
    with pytest.raises(HookResultInvalid, match=r"returned codes a tensor \[1, 3\], NoneType for the rows of one step"):
        s.step(("a", 3, 1), ("b", 3, 1))


def test_a_hook_before_the_rows_is_not_swallowed() -> None:
    class Before(Talker):
        def preprocess_batch(self, **_: Any) -> None:
            boom(None)

    s = Stage(model=Before())
    with pytest.raises(HookFailed, match=r"preprocess_batch raised KeyError"):
        arrive(s, "r", 3, decoded=0)


def test_a_hook_before_the_rows_may_put_a_dict_of_its_own() -> None:
    class Own(Talker):
        def preprocess_batch(self, *, req_ids: Any, model_intermediate_buffer: Any, **_: Any) -> None:
            for request in req_ids:
                model_intermediate_buffer[request] = {**model_intermediate_buffer[request], "own": request}
                del model_intermediate_buffer[request]["sampling_extra_args"]

    s = Stage(model=Own())
    reference = arrive(s, "r", 3, decoded=2)
    assert s.codes("r") == reference.codes[4]
    assert s.runner.model_intermediate_buffer["r"]["own"] == "r"
    assert s.runner.model_intermediate_buffer["r"]["sampling_extra_args"] == {}


def test_a_hook_before_the_rows_may_drop_it() -> None:
    class Drops(Talker):
        def preprocess_batch(self, *, req_ids: Any, model_intermediate_buffer: Any, **_: Any) -> None:
            for request in req_ids:
                del model_intermediate_buffer[request]

    s = Stage(model=Drops())
    arrive(s, "r", 3)
    s.step(("r", 0, 3))
    s.step(("r", 0, 3))
    assert "last" in s.runner.model_intermediate_buffer["r"]


def test_a_hook_before_the_rows_that_puts_something_else() -> None:
    class Wrong(Talker):
        def preprocess_batch(self, *, req_ids: Any, model_intermediate_buffer: Any, **_: Any) -> None:
            model_intermediate_buffer[req_ids[0]] = [1]

    s = Stage(model=Wrong())
    with pytest.raises(
        HookResultInvalid, match=r"request r \(row 0\): preprocess_batch left list as the request's mem"
    ):
        arrive(s, "r", 3, decoded=0)


def test_the_cause_is_kept() -> None:
    error = raised(Silent(), boom, HookFailed)
    assert isinstance(error.__cause__, KeyError)
