from __future__ import annotations

from typing import Any

import pytest

from cli.doctor import engine, pair
from cli.doctor.ask import EngineLook
from cli.doctor.finding import Check, Finding, Severity
from cli.doctor.trial import plan, request
from common.connectors import connector
from common.connectors.nixl import NixlConnector
from common.engine import Role
from tests.unit.cli.doctoring import TOKENS, bad, seen, whole

KV = NixlConnector()
P, D, BOTH = Role.PREFILL, Role.DECODE, Role.BOTH
WARNING, FAULT = Severity.WARNING, Severity.FAULT


@pytest.mark.parametrize(
    ("role", "identity", "expected"),
    [
        (P, None, []),
        (P, {"connector": "NixlConnector", "role": "prefill"}, []),
        (P, {"connector": "NixlPullConnector", "role": "both"}, []),
        (P, {}, []),
        (P, {"connector": "MooncakeConnector"}, [(Check.ENGINE_IDENTITY, FAULT)]),
        (P, {"role": "decode"}, [(Check.ENGINE_IDENTITY, FAULT)]),
        (BOTH, {"role": "prefill"}, [(Check.ENGINE_IDENTITY, FAULT)]),
        (D, {"connector": "X", "role": "prefill"}, [(Check.ENGINE_IDENTITY, FAULT)] * 2),
        (D, {"role": "kv_consumer", "connector": 7}, []),
    ],
    ids=str,
)
def test_what_an_engine_tells_of_itself(role: Role, identity: Any, expected: list[tuple[Check, Severity]]) -> None:
    assert bad(whole(engine.judge(seen("e", role, identity=identity), KV))) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"down": "no answer"}, [(Check.ENGINE, FAULT)]),
        ({"details": False}, [(Check.ENGINE_DETAILS, WARNING)]),
        ({"refused": "500: dead"}, [(Check.ENGINE_PROMPT, FAULT)]),
        ({"lookup_failed": "nobody there"}, [(Check.ENGINE_LOOKUP, FAULT)]),
    ],
    ids=str,
)
def test_engines(more: dict[str, Any], expected: list[tuple[Check, Severity]]) -> None:
    assert bad(whole(engine.judge(seen("e", P, **more), None))) == expected


def test_what_an_engine_serves() -> None:
    found = seen("e", P, models={"a": 2048, "b": None}, version="0.32.0", identity={"revision": "abc"})
    says = [f.what for f in engine.judge(found, KV)]
    assert says[:2] == ["answers, vLLM 0.32.0", "serves a (2048 tokens), b, revision abc"]


def paired(*looks: EngineLook) -> tuple[list[Finding], list[str]]:
    findings, good = pair.judge(pair.pairs_of(looks), KV)
    return whole(findings), [p.about for p in good]


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        ({}, []),
        ({"models": {"other": 100, "m": 100}}, []),
        ({"models": {"m": 50}}, [(Check.PAIR_MATCH, FAULT)]),
        ({"models": {"m": None}}, []),
        ({"models": {"n": 100}, "tokens": (9,)}, [(Check.PAIR_MATCH, FAULT)]),
        ({"tokens": (1, 2, 9, 4)}, [(Check.PAIR_TOKENIZER, FAULT)]),
        ({"tokens": TOKENS[:-1]}, [(Check.PAIR_TOKENIZER, FAULT)]),
        ({"tokens": None}, [(Check.PAIR_TOKENIZER, WARNING)]),
        ({"tokens": None, "refused": "500"}, []),
        ({"version": "0.31.0"}, [(Check.PAIR_VERSION, WARNING)]),
        ({"identity": {"connector": "MooncakeConnector"}}, [(Check.PAIR_MATCH, FAULT)]),
        ({"identity": {"tensor_parallel_size": 2}}, [(Check.PAIR_MATCH, FAULT)]),
    ],
    ids=str,
)
def test_pairs(theirs: dict[str, Any], expected: list[tuple[Check, Severity]]) -> None:
    ours = {"connector": "NixlConnector", "tensor_parallel_size": 1}
    findings, good = paired(seen("p", P, version="0.32.0", identity=ours), seen("d", D, **theirs))
    assert bad(findings) == expected
    stops = [check for check, _ in expected if check is not Check.PAIR_VERSION]
    assert good == ([] if stops else ["p:1 -> d:1"])


def test_where_tokenizers_part() -> None:
    (found,), _ = paired(seen("p", P), seen("d", D, tokens=(1, 2, 3)))
    assert found.what.endswith("is 4 tokens on prefill and 3 on decode, which part at token 3")


def test_pairs_of_another_model_matter_only_to_who_has_no_other() -> None:
    a, b = {"models": {"a": 1}}, {"models": {"b": 1}}
    _, good = paired(seen("pa", P, **a), seen("pb", P, **b), seen("da", D, **a), seen("db", D, **b))
    assert good == ["pa:1 -> da:1", "pb:1 -> db:1"]
    findings, good = paired(seen("pa", P, **a), seen("pb", P, **b), seen("da", D, **a))
    assert good == ["pa:1 -> da:1"]
    assert [(f.check, f.about) for f in findings if f.severity is FAULT] == [(Check.PAIR_MATCH, "pb:1 -> da:1")]


def test_an_engine_of_both_roles_is_no_pair_with_itself() -> None:
    one = [seen("x", BOTH)]
    assert pair.pairs_of(one) == []
    (found,) = whole(pair.none_left(one, []))
    assert found.what == "there is no pair of engines: one engine would hand KV to itself"
    two = [*one, seen("y", BOTH)]
    assert [p.about for p in pair.pairs_of(two)] == ["x:1 -> y:1", "y:1 -> x:1"]
    assert pair.none_left(two, pair.pairs_of(two)) == []


def planned(*looks: EngineLook) -> tuple[list[str], list[str]]:
    pairs = pair.pairs_of(looks)
    _, good = pair.judge(pairs, KV)
    made = plan(looks, pairs, good)
    return [p.about for p in made.pairs], [look.engine.id for look, _ in made.alone]


def test_every_engine_is_tried_and_no_more_pairs_than_that_takes() -> None:
    p1, p2, p3 = (seen(f"p{i}", P) for i in (1, 2, 3))
    d1, d2 = seen("d1", D), seen("d2", D)
    assert planned(p1, p2, d1, d2) == (["p1:1 -> d1:1", "p2:1 -> d2:1"], [])
    pairs, alone = planned(p1, p2, p3, d1, d2)
    assert (pairs[:2], len(pairs), alone) == (["p1:1 -> d1:1", "p2:1 -> d2:1"], 3, [])
    assert planned(p1) == ([], ["p1:1"])


def test_an_engine_that_generates_nothing_is_not_tried() -> None:
    assert planned(seen("p", P, refused="500"), seen("d", D)) == ([], [])
    assert planned(seen("p", P), seen("d", D, refused="500")) == ([], ["p:1"])
    assert planned(seen("p", P), seen("d", D, down="gone")) == ([], ["p:1"])


def test_a_trials_prompt_is_new_and_the_same_for_both_legs() -> None:
    ids = tuple(range(50))
    one, again, other = (request("m", ids, seed).fields["prompt"] for seed in ("a", "a", "b"))
    assert one == again != other
    assert b"a The quick" in bytes(request("m", None, "a").fields["prompt"])


def test_a_name_of_the_connector_is_as_good_as_another() -> None:
    kv = connector("nixl")
    assert bad(engine.judge(seen("e", P, identity={"connector": "nixlconnector"}), kv)) == []
