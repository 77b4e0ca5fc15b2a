"""Where a stream is, as text: what goes through HTTP and Redis in place of the rows.

duet+ipc:///run/duet/thinker.sock?request=9f…-1-decode&stage=thinker
duet+tcp://10.0.0.7:7100?request=9f…-1-decode&stage=thinker
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from common.channel.errors import ChannelError

PREFIX = "duet+"
MAX_IPC_PATH = 100
"""Bytes. A unix socket's address has room for 107 at most, on macOS for 103."""

MAX_PORT = 65_535
MAX_NAME = 1024
"""Bytes of a request's or a stage's name, so that no stranger makes a producer keep long ones."""


@dataclass(frozen=True, slots=True)
class Key:
    """A stream's name at its producer: which request, as engines see it, and which stage made it."""

    request: str
    stage: str

    def __str__(self) -> str:
        return f"{self.request}/{self.stage}"

    @classmethod
    def read(cls, request: str, stage: str) -> Key:
        """What somebody else named. Raises ChannelError for names that are too long."""
        for name in (request, stage):
            if len(name.encode(errors="replace")) > MAX_NAME:
                raise ChannelError(f"channel stream {name[:32]!r}…: a name may have {MAX_NAME} bytes")
        return cls(request, stage)


@dataclass(frozen=True, slots=True)
class Reference:
    """`endpoint` is ZeroMQ's: `ipc:///path` or `tcp://host:port`."""

    endpoint: str
    key: Key

    def __str__(self) -> str:
        return f"{address(self.endpoint)}?{_query(self.key)}"

    @classmethod
    def within(cls, channel: str, key: Key) -> Reference:
        """One stream of the producer whose address is `channel`. Raises ChannelError if that is none."""
        reference = cls.parse(f"{channel}?{_query(key)}")
        if reference.key != key:
            raise ChannelError(f"channel address {channel!r:.200}: expected duet+ipc:///path or duet+tcp://host:port")
        return reference

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Raises ChannelError unless it is exactly what `str` of a reference gives."""
        try:
            text.encode()
            parts = urlsplit(text)
            told = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
        except ValueError as e:
            raise _unreadable(text, str(e)) from None
        query = dict(told)
        if set(query) != {"request", "stage"} or len(told) > len(query) or not all(query.values()):
            raise _unreadable(text, "its query must have request and stage, and nothing else")
        scheme = parts.scheme.removeprefix(PREFIX)
        reference = cls(f"{scheme}://{unquote(parts.netloc + parts.path)}", Key.read(query["request"], query["stage"]))
        if not parts.scheme.startswith(PREFIX) or parts.fragment:
            raise _unreadable(text, "expected duet+ipc:///path?… or duet+tcp://host:port?…")
        check_endpoint(reference.endpoint)
        return reference


def address(endpoint: str) -> str:
    """A producer's address as text: a reference without its query, `duet+tcp://10.0.0.7:7100`."""
    scheme, _, place = endpoint.partition("://")
    return f"{PREFIX}{scheme}://{quote(place, safe='/:[]')}"


def check_endpoint(endpoint: str) -> None:
    """Raises ChannelError unless it is `ipc:///path` or `tcp://host:port`."""
    scheme, _, address = endpoint.partition("://")
    if scheme == "ipc" and address.startswith("/"):
        if len(address.encode()) > MAX_IPC_PATH:
            raise ChannelError(f"channel endpoint {endpoint!r:.200}: its path is longer than {MAX_IPC_PATH} bytes")
        return
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT)) and 0 < int(port) <= MAX_PORT
    if scheme != "tcp" or not host or not is_port:
        raise ChannelError(f"channel endpoint {endpoint!r:.200}: expected ipc:///path or tcp://host:port")


def _query(key: Key) -> str:
    return urlencode({"request": key.request, "stage": key.stage}, quote_via=quote)


def _unreadable(text: str, why: str) -> ChannelError:
    return ChannelError(f"channel reference {text!r:.200}: {why:.200}")
