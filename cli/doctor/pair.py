"""A prefill engine beside a decode engine: whether one can go on where the other ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cli.doctor.ask import EngineLook
from cli.doctor.finding import Check, Finding, fault, ok, warning
from common.connectors import Connector
from common.connectors.base import EngineFacts
from common.engine import Role


@dataclass(frozen=True, slots=True)
class Pair:
    """Two engines that answer; `model` is a name that both serve, None if there is none."""

    prefill: EngineLook
    decode: EngineLook

    @property
    def model(self) -> str | None:
        return next((name for name in self.prefill.models if name in self.decode.models), None)

    @property
    def about(self) -> str:
        return f"{self.prefill.engine.id} -> {self.decode.engine.id}"


def pairs_of(looks: Sequence[EngineLook]) -> list[Pair]:
    """All of the engines that answer. An engine of role both is none with itself: it must not hand KV to itself."""
    up = [look for look in looks if look.up]
    return [
        Pair(p, d)
        for p in up
        if p.engine.role.serves(Role.PREFILL)
        for d in up
        if d.engine.role.serves(Role.DECODE) and d.engine.id != p.engine.id
    ]


def none_left(looks: Sequence[EngineLook], pairs: Sequence[Pair]) -> list[Finding]:
    """A finding if no request can be split at all."""
    if pairs:
        return []
    missing = [
        leg.value for leg in (Role.PREFILL, Role.DECODE) if not any(x.up and x.engine.role.serves(leg) for x in looks)
    ]
    lacking = f"no {' and no '.join(missing)} engine answers" if missing else "one engine would hand KV to itself"
    nothing = fault(
        Check.PAIRS,
        f"there is no pair of engines: {lacking}",
        why="a request needs a prefill engine and another decode engine: every one is answered with 503",
        do="start the engines that are missing, and name them with --prefill and --decode",
    )
    return [nothing]


def judge(pairs: Sequence[Pair], kv: Connector) -> tuple[list[Finding], list[Pair]]:
    """What is wrong with pairs, and the pairs that a request may be sent through.

    Pairs without a common model count only where one of the two is left without any partner: engines of several models
    may stand behind one gateway, which pairs them by model.
    """
    findings: list[Finding] = []
    good: list[Pair] = []
    for pair in pairs:
        if pair.model is None and not _is_left_alone(pair, pairs):
            continue
        seen = [*_match(pair, kv), *_tokenizer(pair)]
        if not seen:
            good.append(pair)
        findings += [*seen, *_version(pair)]
    if good:
        findings.append(ok(Check.PAIR_MATCH, "same model, max_model_len and tokenizer", about=_named(good)))
    return findings, good


def _is_left_alone(pair: Pair, pairs: Sequence[Pair]) -> bool:
    """Whether one of the two shares a model with nobody."""
    matched = [p for p in pairs if p.model is not None]
    return all(p.prefill is not pair.prefill for p in matched) or all(p.decode is not pair.decode for p in matched)


def _match(pair: Pair, kv: Connector) -> list[Finding]:
    return [
        fault(
            Check.PAIR_MATCH,
            sentence,
            why="the prompt's KV of one is not the other's: decode refuses it, hangs, dies, or answers wrongly",
            do="start both with the same model, --served-model-name, --max-model-len and connector",
            about=pair.about,
        )
        for sentence in kv.check(facts(pair.prefill, pair.model), facts(pair.decode, pair.model))
    ]


def facts(look: EngineLook, model: str | None) -> EngineFacts:
    """What a connector compares. `model` is the name that both serve; without one the engine's first stands for it."""
    name = next(iter(look.models)) if model is None else model
    size = (look.identity or {}).get("tensor_parallel_size")
    return EngineFacts(
        engine=look.engine,
        connector=look.told("connector"),
        model=name,
        max_model_len=look.models[name].max_model_len,
        tensor_parallel_size=size if isinstance(size, int) else None,
    )


def _tokenizer(pair: Pair) -> list[Finding]:
    """Only where both serve the model: tokenizers of two models differ, and that is said already."""
    if pair.model is None or pair.prefill.refused is not None or pair.decode.refused is not None:
        return []
    ours, theirs = pair.prefill.tokens, pair.decode.tokens
    if ours is None or theirs is None:
        silent = " and ".join(x.engine.id for x in (pair.prefill, pair.decode) if x.tokens is None)
        untold = warning(
            Check.PAIR_TOKENIZER,
            f"tokenizers cannot be compared: {silent} returned no prompt_token_ids",
            why="a tokenizer that differs makes decode read KV of another prompt, without a word",
            do="use vLLM 0.10 or later, which knows return_token_ids, or compare tokenizer.json of both yourself",
            about=pair.about,
        )
        return [untold]
    if ours == theirs:
        return []
    at = next(i for i, (a, b) in enumerate(zip_longest(ours, theirs)) if a != b)
    differs = fault(
        Check.PAIR_TOKENIZER,
        f"tokenizer differs: the same text is {len(ours)} tokens on prefill and {len(theirs)} on decode, "
        f"which part at token {at}",
        why="decode then reads the KV of another prompt: it answers wrongly without a word, or dies",
        do="start both with the same files of the same model, and the same --tokenizer and --tokenizer-mode",
        about=pair.about,
    )
    return [differs]


def _version(pair: Pair) -> list[Finding]:
    ours, theirs = pair.prefill.version, pair.decode.version
    if ours is None or theirs is None or ours == theirs:
        return []
    apart = warning(
        Check.PAIR_VERSION,
        f"vLLM differs: prefill runs {ours}, decode {theirs}",
        why="connectors may refuse a partner of another version, and block layouts may differ",
        do="run one version of vLLM on both sides",
        about=pair.about,
    )
    return [apart]


def _named(pairs: Sequence[Pair]) -> str:
    return ", ".join(pair.about for pair in pairs)
