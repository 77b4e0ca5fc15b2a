"""The stage channel: rows and codes from one engine to the next, past the gateway and past Redis.

    producer's process                                   consumer's process
    publish(key, frame) -> Streams (bounded, TTL)        async for frame in pull(reference):
                              |  one thread, ROUTER  <--- PULL from index n ---  DEALER
                              `-------------------------- FRAME n, n+1, …, END ->

The producer owns the rows: it keeps every frame of a stream until the stream is released or nobody touched it for its
TTL, so a consumer that lost its connection, or a second consumer in its place, pulls again from any index. A stream
always ends with a terminal message: that it is whole, or why it is not. A consumer that hears nothing asks again, and
gives up on a producer that does not answer.

| module | what is in it |
| --- | --- |
| `reference.py` | `duet+ipc://…`: where a stream is, as text; the only thing that goes through HTTP and Redis |
| `frame.py` | some rows with dtype and shape, as buffers that are not copied |
| `streams.py` | what a producer keeps: bounded, with a time to live; pure |
| `wire.py` | the messages, to and from ZeroMQ parts |
| `claim.py` | whose an `ipc` endpoint is |
| `consumers.py` | who pulls what from a producer: bounded; pure |
| `hosts.py` | whether a host is reached by IPv4 or IPv6 |
| `sockets.py` | both ends' ZeroMQ sockets, with their bounds |
| `publisher.py`, `pull.py` | both ends |
| `errors.py` | what can go wrong |
"""

from common.channel.errors import ChannelError, ChannelFull, ProducerLost, PullerClosed, StreamClosed, StreamFailed
from common.channel.frame import Frame, Rows
from common.channel.publisher import Publisher
from common.channel.pull import Puller
from common.channel.reference import Key, Reference
from common.channel.streams import Limits

__all__ = [
    "ChannelError",
    "ChannelFull",
    "Frame",
    "Key",
    "Limits",
    "ProducerLost",
    "Publisher",
    "Puller",
    "PullerClosed",
    "Reference",
    "Rows",
    "StreamClosed",
    "StreamFailed",
]
