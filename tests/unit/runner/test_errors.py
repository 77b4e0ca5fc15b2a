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
    ],
)
def test_a_batched_hook(wrong: Any, expected: type[PhaseError], said: str) -> None:
    error = raised(Silent(batched=True), wrong, expected)
    assert (error.requests, error.rows) == (("good", "bad"), (0, 1))
    with pytest.raises(expected, match=rf"request good \(row 0\), request bad \(row 1\): .*{said}"):
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


def test_a_hook_behind_the_forward_pass_is_not_swallowed() -> None:
    class After(Talker):
        def postprocess(self, hidden: torch.Tensor, **info: Any) -> Any:
            return boom(None)

    s = Stage(model=After())
    with pytest.raises(HookFailed, match=r"model After, request r \(row 0\): postprocess raised KeyError: 'text'"):
        arrive(s, "r", 3, decoded=0)


def test_a_hook_before_the_rows_is_not_swallowed() -> None:
    class Before(Talker):
        def preprocess_batch(self, **_: Any) -> None:
            boom(None)

    s = Stage(model=Before())
    with pytest.raises(HookFailed, match=r"preprocess_batch raised KeyError"):
        arrive(s, "r", 3, decoded=0)


def test_the_cause_is_kept() -> None:
    error = raised(Silent(), boom, HookFailed)
    assert isinstance(error.__cause__, KeyError)
