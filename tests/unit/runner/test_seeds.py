"""Seeds for MTP: what is one, where a bad one is refused, and models that draw nothing."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from engines.runner.errors import SeedInvalid
from engines.runner.seeds import HIGHEST, LOWEST, SEED, Generators, seed_of
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import Talker
from tests.unit.runner.test_contract import TOKENS, arrive
from tests.unit.runner.test_mtp import Sampled, speak

GOOD = [(0, 0), (7, 7), (-3, -3), ("7", 7), (7.0, 7), (LOWEST, LOWEST), (HIGHEST, HIGHEST)]
BAD: list[Any] = ["abc", "", "7.5", 7.5, True, [7], {"a": 1}, float("nan"), float("inf"), 1e30, str(HIGHEST + 1)]
TOO_LONG = [LOWEST - 1, HIGHEST + 1]
"""vLLM takes no such extra argument itself."""
needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make install ENGINES=cpu")
quiet = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("told", "seed"), GOOD)
def test_what_is_a_seed(told: Any, seed: int) -> None:
    assert seed_of({SEED: told}) == seed
    assert Generators(torch.device("cpu")).of("r", {SEED: told}) is not None


@pytest.mark.parametrize("extra", [None, {}, {SEED: None}, {"other": "abc"}])
def test_no_seed(extra: Any) -> None:
    assert seed_of(extra) is None


@pytest.mark.parametrize("told", [*BAD, *TOO_LONG], ids=repr)
def test_what_is_none(told: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{SEED} is .*; expected a whole number from -2\*\*63 to 2\*\*64 - 1$"):
        seed_of({SEED: told})


@needs_vllm
@quiet
@pytest.mark.parametrize("told", BAD, ids=repr)
def test_a_bad_one_is_the_clients_fault_at_admission(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where vLLM verifies a request's parameters, in the API server: a 400, and nothing for the engine."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    from engines.runner.admission import check_seeds

    monkeypatch.setattr(SamplingParams, "verify", SamplingParams.verify)  # put back behind the test
    check_seeds()
    verify = SamplingParams.verify
    check_seeds()
    assert SamplingParams.verify is verify
    with pytest.raises(VLLMValidationError, match=f"{SEED} is ") as refused:
        SamplingParams(extra_args={SEED: told}).verify(None, None, None, None)
    assert refused.value.parameter == SEED


LOUD: list[Any] = [
    "\ud800",
    "\u2028" * 9,
    "x" * 10_000,
    ["\ud800"] * 5000,
    10**4000,
    {"k" * 999: {"\ud800": "v" * 999}},
]


@pytest.mark.parametrize("told", LOUD, ids=[type(one).__name__ + str(k) for k, one in enumerate(LOUD)])
def test_what_is_said_of_one_can_be_sent_whatever_it_is(told: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{SEED} is ") as refused:
        seed_of({SEED: told})
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 300


@needs_vllm
@quiet
@pytest.mark.parametrize("told", LOUD[:4], ids=["no character", "line ends", "long", "list"])
def test_what_is_refused_at_admission_can_be_sent_whatever_it_is(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    from engines.runner.admission import check_seeds

    monkeypatch.setattr(SamplingParams, "verify", SamplingParams.verify)  # put back behind the test
    check_seeds()
    with pytest.raises(VLLMValidationError) as refused:
        SamplingParams(extra_args={SEED: told}).verify(None, None, None, None)
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 300


@needs_vllm
@quiet
def test_a_good_one_is_verified_as_vllm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.sampling_params import SamplingParams

    from engines.runner import admission

    seen: list[Any] = []
    monkeypatch.setattr(SamplingParams, "verify", lambda self, *args: seen.append((self.extra_args, *args)))
    admission.check_seeds()
    SamplingParams(extra_args={SEED: "7"}).verify(1, 2, 3, 4)  # type: ignore[arg-type]
    assert seen == [({SEED: "7"}, 1, 2, 3, 4)]


def test_a_bad_one_that_comes_as_far_as_the_worker_is_named() -> None:
    """Our plugin was left out: the engine ends, with the reason."""
    s = Stage(model=Sampled())
    arrive(s, "good", 3)
    arrive(s, "bad", 3)
    s.requests["bad"].extra_args = {SEED: "abc"}
    for name in ("good", "bad"):
        s.step((name, 0, 3))
        s.requests[name].output.append(TOKENS[0])
    with pytest.raises(SeedInvalid, match=rf"^model Sampled, request bad \(row 1\): {SEED} is 'abc'; expected a whole"):
        s.step(("good", 3, 1), ("bad", 3, 1))


@pytest.mark.parametrize("batched", [False, True])
def test_a_model_whose_mtp_has_no_generator_draws_nothing_that_a_seed_could_fix(
    batched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows go together, seeded or not; that the seed changes nothing is said once."""
    s = Stage(model=Talker(batched=batched))
    references = {name: arrive(s, name, 3) for name in "ab"}
    for name in "ab":
        s.requests[name].extra_args = {SEED: 7}
        s.step((name, 0, 3))
    with caplog.at_level(logging.WARNING):
        for k in range(2):
            for name in "ab":
                s.requests[name].output.append(TOKENS[k])
            s.step(("a", 3 + k, 1), ("b", 3 + k, 1))
    assert s.model.mtp_batches == [[TOKENS[0]] * 2, [TOKENS[1]] * 2]
    assert {name: s.codes(name) for name in "ab"} == {name: references[name].codes[4] for name in "ab"}
    assert [r.getMessage() for r in caplog.records] == [
        f"model Talker: its talker_mtp has no generator, {SEED} changes nothing"
    ]


def test_a_model_that_takes_generators_alone_is_given_one_in_a_list() -> None:
    class Listed(Sampled):
        generators = True

        def __post_init__(self) -> None:
            super().__post_init__()
            self.talker_mtp = self._listed

        def _listed(self, ids: Any, embeds: Any, hidden: Any, text: Any, generators: Any = None) -> Any:
            return self._sampled(ids, embeds, hidden, text, **({"generators": generators} if generators else {}))

    assert speak(Listed(), {"a": 7}) == speak(Sampled(), {"a": 7})
