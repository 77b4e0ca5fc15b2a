"""What is refused of a request before it reaches a worker, where it could only end the engine.

vLLM has each request's sampling parameters verified in the API server, and in `LLM` for an engine in the same process;
what that refuses is a 400 for the client and nothing to the engine. A model's seed for MTP is checked there too. It is
checked once more where it is used (SeedInvalid), for engines that were told to leave our plugin out.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from engines.runner.errors import RuntimeUnsupported
from engines.runner.seeds import SEED, seed_of

METHOD = "verify"
_WRAPPED = "_duet_checks_seeds"


def check_seeds() -> None:
    """May be called more than once in a process. Raises RuntimeUnsupported for a vLLM that verifies otherwise."""
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    stock = getattr(SamplingParams, METHOD, None)
    if stock is None:
        raise RuntimeUnsupported(
            f"SamplingParams has no {METHOD}, through which seeds are checked: "
            "leave duet_runner out of VLLM_PLUGINS on this vLLM"
        )
    if hasattr(stock, _WRAPPED):
        return

    @wraps(stock)
    def verify(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            seed_of(self.extra_args)
        except ValueError as e:
            raise VLLMValidationError(str(e), parameter=SEED) from None  # it would show a value as it is
        return stock(self, *args, **kwargs)

    setattr(verify, _WRAPPED, True)
    setattr(SamplingParams, METHOD, verify)
