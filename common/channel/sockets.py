"""The sockets of both ends, with their bounds: neither keeps more for a peer than a peer that is right can want."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio

from common.channel.errors import ChannelError
from common.channel.hosts import by_ipv6
from common.channel.reference import Reference
from common.channel.wire import MAX_ASKED, MAX_TOLD, MOST_CREDIT, Message, to_parts

PRODUCER_LINGER_MS = 1000
CONSUMER_LINGER_MS = 500
SENT_AHEAD = 2 * MOST_CREDIT
"""Messages that wait for one connection. Beyond them is only one that asks anew and does not read: it loses them."""


def bound(endpoint: str) -> tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes]]:
    """A producer's; at `tcp://[::]:port` it is reached by IPv4 too. Raises ChannelError."""
    context = zmq.Context()
    try:
        router = context.socket(zmq.ROUTER)
        router.linger = PRODUCER_LINGER_MS
        router.maxmsgsize = MAX_ASKED
        router.sndhwm = SENT_AHEAD
        router.ipv6 = by_ipv6(endpoint)
        router.bind(endpoint)
    except zmq.ZMQError as e:
        context.destroy(0)
        raise ChannelError(f"channel endpoint {endpoint!r}: {e}") from e
    return context, router


def connected(context: zmq.asyncio.Context, reference: Reference, *, ipv6: bool) -> zmq.asyncio.Socket:
    """A consumer's; `ipv6` as of `hosts`. Raises ChannelError; a producer that is not there is no error."""
    try:
        dealer = context.socket(zmq.DEALER)
    except zmq.ZMQError as e:
        raise ChannelError(f"{reference}: {e}") from e
    dealer.linger = CONSUMER_LINGER_MS
    dealer.maxmsgsize = MAX_TOLD
    dealer.ipv6 = ipv6
    try:
        dealer.connect(reference.endpoint)
    except zmq.ZMQError as e:
        dealer.close()
        raise ChannelError(f"{reference}: {e}") from e
    return dealer


def say(dealer: zmq.asyncio.Socket, message: Message) -> None:
    """At once. What cannot be sent now is as good as lost with a connection: who hears nothing asks again."""
    sent = asyncio.ensure_future(dealer.send_multipart(to_parts(message), zmq.DONTWAIT))
    fault = sent.exception()
    if fault is not None and not isinstance(fault, zmq.Again):
        raise fault
