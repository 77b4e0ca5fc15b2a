"""What can be made to go wrong. Each fault holds for `times` requests, then the engine is well again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal[
    "status",  # answer with `status` and vLLM's error shape
    "drop",  # close the connection before any header
    "drop_midway",  # close it after `after` tokens of a stream
    "hang",  # take the request and say nothing, until the client leaves
    "hang_midway",  # fall silent after `after` tokens of a stream
    "error_event",  # 200, then an error event after `after` tokens, then [DONE]
    "finish_error",  # end with finish_reason "error"
    "no_done",  # end a stream without [DONE]
    "null_handoff",  # prefill: kv_transfer_params null
    "partial_handoff",  # prefill: kv_transfer_params without `without`
]


@dataclass(slots=True)
class Fault:
    mode: Mode
    times: int = 1
    status: int = 500
    after: int = 0
    without: str = "remote_host"
    message: str = "made to fail"

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Fault:
        return cls(**fields)
