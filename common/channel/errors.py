"""What can go wrong on the stage channel."""

from __future__ import annotations

from common.errors import DuetError


class ChannelError(DuetError):
    """A message or a reference that is not what the channel says it should be."""

    code = "channel_error"


class ChannelFull(ChannelError):
    """A frame does not fit into what the producer may keep. The stream has been ended with this as its reason."""

    code = "channel_full"


class StreamClosed(ChannelError):
    """A frame for a stream that has ended."""

    code = "channel_stream_closed"


class StreamFailed(ChannelError):
    """The stream ended without being whole; `reason` is the producer's word for it."""

    code = "channel_stream_failed"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ProducerLost(ChannelError):
    """The producer does not answer: it is gone, or cannot be reached."""

    code = "channel_producer_lost"


class PullerClosed(ChannelError):
    """The consumer itself stopped pulling: its `Puller` was closed."""

    code = "channel_puller_closed"
