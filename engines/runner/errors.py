"""What can go wrong between the runner and a model.

PhaseError                 V1 cannot confine it to one request: the engine ends with it
├── HookFailed             a hook of the model raised
├── HookResultInvalid      a hook returned something that the contract does not know
├── MtpInputsMissing       a decode row came without what MTP needs
├── SeedInvalid            a seed for MTP is none; refused at admission where our plugin is loaded
├── ReplayLost             a row must be fed again, and is not known any more
└── RewindLost             tokens do not count any more, and what the model remembered before them is not known
RuntimeUnsupported         the engine does not start
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from common.errors import ConfigurationError, DuetError

if TYPE_CHECKING:
    from engines.runner.rows import Row


class PhaseError(DuetError):
    """A row that cannot be fed. `requests` and `rows` (indices in the batch) are aligned, mostly one of each; a request
    that has finished is in no row: None."""

    code = "phase_error"

    def __init__(self, message: str, *, model: str, requests: Sequence[str], rows: Sequence[int | None]) -> None:
        where = ", ".join(
            f"request {request} ({'no row' if row is None else f'row {row}'})"
            for request, row in zip(requests, rows, strict=True)
        )
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


class SeedInvalid(PhaseError):
    """A request's seed for MTP is no whole number of 64 bits."""

    code = "seed_invalid"


class ReplayLost(PhaseError):
    """A row is computed again that this engine has not fed: what it held cannot be known."""

    code = "replay_lost"


class RewindLost(PhaseError):
    """Tokens that decode has fed were taken back, further than what the model remembers can be."""

    code = "rewind_lost"


class RuntimeUnsupported(ConfigurationError):
    """This vLLM, its settings or the model do not go with the phase contract; the message says what to set."""

    code = "runtime_unsupported"


def error_of(kind: type[PhaseError], model: str, rows: Iterable[Row], message: str) -> PhaseError:
    """The error `kind` of these rows."""
    found = list(rows)
    return kind(message, model=model, requests=[row.request for row in found], rows=[row.index for row in found])
