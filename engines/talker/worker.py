"""`--worker-extension-cls engines.talker.worker.Speaking`: what the endpoint tells workers, by `collective_rpc`."""

from __future__ import annotations

from typing import Any


class Speaking:
    """vLLM makes it a base of the worker's class."""

    def end_codes(self: Any, request: str, error: str | None) -> None:
        """Ends the stream of codes of `request`: whole, or with why it is not."""
        self.get_model().end_codes(request, error)
