"""What can go wrong between the runner and a model.

PhaseError                 V1 cannot confine it to one request: the engine ends with it
├── HookFailed             a hook of the model raised
├── HookResultInvalid      a hook returned something that the contract does not know
├── MtpInputsMissing       a decode row came without what MTP needs
└── ReplayLost             a row must be fed again, and is not known any more
RuntimeUnsupported         the engine does not start
"""

from __future__ import annotations

from collections.abc import Sequence

from common.errors import ConfigurationError, DuetError


class PhaseError(DuetError):
    """A row that cannot be fed. `requests` and `rows` (indices in the batch) are aligned, mostly one of each."""

    code = "phase_error"

    def __init__(self, message: str, *, model: str, requests: Sequence[str], rows: Sequence[int]) -> None:
        where = ", ".join(f"request {r} (row {i})" for r, i in zip(requests, rows, strict=True))
        super().__init__(f"model {model}, {where}: {message}")
        self.model = model
        self.requests = tuple(requests)
        self.rows = tuple(rows)


class HookFailed(PhaseError):
    """A hook of the model raised; its own exception is the cause."""

    code = "hook_failed"


class HookResultInvalid(PhaseError):
    """What a hook returned has the wrong type, shape or count."""

    code = "hook_result_invalid"


class MtpInputsMissing(PhaseError):
    """The hook of a decode row returned no `mtp_inputs`, though the model has `talker_mtp`."""

    code = "mtp_inputs_missing"


class ReplayLost(PhaseError):
    """A row is computed again that this engine has not fed: what it held cannot be known."""

    code = "replay_lost"


class RuntimeUnsupported(ConfigurationError):
    """This vLLM, its settings or the model do not go with the phase contract; the message says what to set."""

    code = "runtime_unsupported"
