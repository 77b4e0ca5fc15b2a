"""Codes on their way to Code2Wav: one stream a request, one frame a message, int32 `[1, groups]` named `codes`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from torch import Tensor, int32

from common.channel import ChannelFull, StreamClosed
from common.channel.reference import Key
from engines.channel import leads, publisher, to_rows

STAGE = "talker"
CODES = "codes"


class Outbox:
    """`on` is false on tensor-parallel ranks that have the same codes as the first."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    @classmethod
    def of_worker(cls) -> Outbox:
        """Binds the channel: an endpoint that is taken ends the engine now, not its first request. Raises ChannelError,
        ConfigurationError."""
        if on := leads():
            publisher()
        return cls(on=on)

    def publish(self, requests: Sequence[str | None], codes: Tensor) -> None:
        """`codes` `[n, groups]`, aligned with `requests`; None has no stream.

        A stream that has ended takes nothing: whoever pulls it has been told how, and one request's stream is no
        reason to end the engine.
        """
        if not self._on or not any(requests):
            return
        for request, row in zip(requests, codes.to(int32).cpu().split(1), strict=True):
            if request is not None:
                with contextlib.suppress(StreamClosed, ChannelFull):
                    publisher().publish(Key(request, STAGE), {CODES: to_rows(row)})

    def end(self, request: str, error: str | None) -> None:
        """The stream is whole, or `error` says why it is not."""
        if self._on:
            publisher().close(Key(request, STAGE), error)
