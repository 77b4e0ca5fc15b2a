"""What can be made to go wrong. Each fault holds for `times` requests, then the engine is well again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

Mode = Literal[
    "status",  # answer with `status` and vLLM's error shape
    "drop",  # close the connection before any header
    "drop_midway",  # close it after `after` tokens of a stream, or in the middle of a whole reply
    "hang",  # take the request and say nothing, until the client leaves
    "hang_midway",  # fall silent after `after` tokens of a stream
    "error_event",  # 200, then an error event after `after` tokens, then [DONE]
    "finish_error",  # end with finish_reason "error": other engines do, vLLM 0.32 makes it a 500 or an error event
    "no_done",  # end a stream without [DONE]
    "null_handoff",  # prefill: kv_transfer_params null
    "partial_handoff",  # prefill: kv_transfer_params without `without`
    "slow",  # `seconds` more before each token
]
Target = Literal["any", "prefill", "decode", "unsplit", "health"]


@dataclass(slots=True)
class Fault:
    """`on` says whom it hits: requests of one leg, requests of any, or health checks (`status`, `drop`, `hang`)."""

    mode: Mode
    on: Target = "any"
    times: int = 1
    status: int = 500
    after: int = 0
    without: str = "remote_host"
    message: str = "made to fail"
    seconds: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Fault:
        """From JSON. Raises ValueError for a field or a mode that is not known."""
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown or values.get("mode") not in get_args(Mode) or values.get("on", "any") not in get_args(Target):
            raise ValueError(
                f"a fault {dict(values)!r:.200}; expected mode, one of {', '.join(get_args(Mode))}, with on, one of "
                f"{', '.join(get_args(Target))}, and of {', '.join(f.name for f in fields(cls)[2:])} what is wanted"
            )
        return cls(**values)

    def hits(self, target: Target) -> bool:
        return self.on == target or (self.on == "any" and target != "health")


class Faults(list[Fault]):
    """Those in force, the oldest first."""

    def take(self, target: Target) -> Fault | None:
        """The fault that hits this request, used up by one."""
        found = next((fault for fault in self if fault.hits(target)), None)
        if found is not None:
            found.times -= 1
            if found.times <= 0:
                self.remove(found)
        return found
