"""What a check found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """`warning`: requests are served, but something is worse than it could be. `fault`: some request will fail."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Check(StrEnum):
    """Names that do not change: programs read them. `docs/doctor.md` says what each means."""

    PYTHON = "machine.python"
    CORES = "machine.cores"
    MEMORY = "machine.memory"
    OPEN_FILES = "machine.open_files"
    GATEWAY = "installation.gateway"
    VLLM = "installation.vllm"
    COMPAT = "installation.compat"
    NIXL = "installation.nixl"
    CONNECTOR = "settings.connector"
    ENGINES = "settings.engines"
    REDIS = "redis.reachable"
    REDIS_VERSION = "redis.version"
    REDIS_MODE = "redis.mode"
    REDIS_EVICTION = "redis.eviction"
    REDIS_PERSISTENCE = "redis.persistence"
    REDIS_LATENCY = "redis.latency"
    ENGINE = "engine.reachable"
    ENGINE_MODEL = "engine.model"
    ENGINE_IDENTITY = "engine.identity"
    ENGINE_PROMPT = "engine.prompt"
    ENGINE_DETAILS = "engine.prompt_tokens_details"
    ENGINE_LOOKUP = "engine.lookup"
    PAIRS = "pair.exists"
    PAIR_MATCH = "pair.match"
    PAIR_VERSION = "pair.version"
    PAIR_TOKENIZER = "pair.tokenizer"
    PREFILL = "prefill.handoff"
    TRANSFER = "pair.transfer"
    SPEECH_ENGINE = "speech.reachable"
    SPEECH_IDENTITY = "speech.identity"
    SPEECH_CHANNEL = "speech.channel"
    SPEECH = "speech.path"


@dataclass(frozen=True, slots=True)
class Finding:
    """`about` is the engine, pair or server that it concerns, empty for this machine. An `ok` says no why and no do."""

    check: Check
    severity: Severity
    what: str
    why: str = ""
    do: str = ""
    about: str = ""


def ok(check: Check, what: str, *, about: str = "") -> Finding:
    return Finding(check, Severity.OK, what, about=about)


def warning(check: Check, what: str, *, why: str, do: str, about: str = "") -> Finding:
    return Finding(check, Severity.WARNING, what, why, do, about)


def fault(check: Check, what: str, *, why: str, do: str, about: str = "") -> Finding:
    return Finding(check, Severity.FAULT, what, why, do, about)


def count(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many of each severity; every severity is there."""
    found = dict.fromkeys(Severity, 0)
    for one in findings:
        found[one.severity] += 1
    return found
