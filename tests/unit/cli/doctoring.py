"""What the doctor's tests share: engines as they were seen, without engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.doctor.ask import EngineLook, Model
from cli.doctor.finding import Check, Finding, Severity
from common.engine import Engine, Role

TOKENS = (1, 2, 3, 4)


def seen(
    name: str,
    role: Role,
    *,
    models: Mapping[str, int | None] | None = None,
    identity: Mapping[str, Any] | None = None,
    tokens: tuple[int, ...] | None = TOKENS,
    **more: Any,
) -> EngineLook:
    """An engine at `http://<name>:1` that is well, but for what is said of it."""
    listed = {"m": 100} if models is None else models
    return EngineLook(
        Engine.at(f"http://{name}:1", role),
        models={model: Model(length, None) for model, length in listed.items()},
        identity=identity,
        tokens=tokens,
        **{"details": True, **more},
    )


def bad(findings: list[Finding]) -> list[tuple[Check, Severity]]:
    return [(f.check, f.severity) for f in findings if f.severity is not Severity.OK]


def whole(findings: list[Finding]) -> list[Finding]:
    """The findings, once each that is not ok has been seen to say why it matters and what to do."""
    for finding in findings:
        assert finding.what
        assert bool(finding.why and finding.do) == (finding.severity is not Severity.OK)
    return findings
