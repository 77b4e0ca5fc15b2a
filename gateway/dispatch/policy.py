"""What happens after a failed attempt: pure, from the settings and the error.

| setting | when | may say |
| --- | --- | --- |
| `on_prefill_failure` | prefill did not answer, or answered with a fault of its own | `retry`, `local`, `fail` |
| `on_handoff_missing` | prefill answered without a usable handoff, or that ran out | the same |
| `on_decode_failure` | decode failed before its first byte had gone on to the client | `retry`, `fail` |
| `on_speech_failure` | a Talker or a Code2Wav failed, whatever had gone on to the client | `retry`, `fail` |

`retry` is another attempt with another prefill and handoff, on other engines where there are some. `local` gives the
whole request to a decode engine, counted as unsplit. A 4xx is the request's fault: the client's answer at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common.errors import EngineError, EngineRefused, EngineTimeout, EngineUnreachable, HandoffExpired, HandoffInvalid


class Policy(StrEnum):
    RETRY = "retry"
    LOCAL = "local"
    FAIL = "fail"


class Part(StrEnum):
    """What of a request failed; the values are labels of `duet_retries_total`."""

    PREFILL = "prefill"
    HANDOFF = "handoff"
    DECODE = "decode"


UNSPLIT_AFTER = {Part.PREFILL: "prefill_failed", Part.HANDOFF: "handoff_missing"}
"""Reasons of `duet_unsplit_total` that are decisions of a policy."""
NO_PREFILL = "no_prefill"
"""The reason where no prefill engine could be asked at all."""


@dataclass(frozen=True, slots=True)
class Policies:
    """`attempts` bounds one request, the first one included."""

    on_prefill_failure: Policy = Policy.RETRY
    on_handoff_missing: Policy = Policy.RETRY
    on_decode_failure: Policy = Policy.RETRY
    attempts: int = 3
    on_speech_failure: Policy = Policy.RETRY

    def of(self, part: Part) -> Policy:
        if part is Part.PREFILL:
            return self.on_prefill_failure
        return self.on_handoff_missing if part is Part.HANDOFF else self.on_decode_failure


def part_of(error: EngineError, prefill: str | None) -> Part:
    """`prefill` is the id of the prefill engine, None where there is none."""
    if isinstance(error, HandoffInvalid):
        return Part.HANDOFF
    return Part.PREFILL if error.engine == prefill else Part.DECODE


def may_help(error: EngineError) -> bool:
    """Whether another engine may do better: not with what the engine says is the request's fault, nor with what none
    can do (501)."""
    return not isinstance(error, EngineRefused) or (error.status >= 500 and error.status != 501)


def may_pass(error: EngineError) -> bool:
    """Whether the same engine may do better: its connection broke, as one that stood idle does, or its KV was late."""
    return isinstance(error, EngineUnreachable | HandoffExpired)


def is_the_engines(error: EngineError) -> bool:
    """Whether the engine is to blame whatever other engines say to this request: it was not there."""
    return isinstance(error, EngineUnreachable | EngineTimeout)
