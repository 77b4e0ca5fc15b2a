"""HTTP/1.1 as uvicorn speaks it, with bounds of our own and OpenAI's error shape for what is no HTTP request.

uvicorn's protocol takes headers of any length, waits for them for ever, and answers nonsense in plain text. It waits
as long for a client that takes nothing of its answer, and for the rest of a body that was answered before it was
whole. It reads no further once a client offers another protocol, and sends chunks to clients that know none.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable, MutableMapping
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from common.errors import BodyTimeout, DuetError, HeadersTooLarge, MalformedBody, MethodNotAllowed
from gateway.wire.errors import error_reply

_AT_ONCE = struct.pack("ii", 1, 0)
_SHOWN = 80
"""Bytes of a header that an error message shows."""
MOST_HEADERS = 256
"""Header lines of one request."""
_AROUND_LINE = 4
"""Bytes of a header line beside its name and value: `: ` and its end."""
_AROUND_URL = len(b"  HTTP/1.1\r\n")


class MalformedRequest(MalformedBody):
    """What came is not an HTTP request."""

    code = "malformed_request"


class UnknownCoding(MalformedRequest):
    """A transfer coding that is not understood here, so nobody can say where the body ends."""

    status = 501
    code = "unknown_transfer_coding"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Its bounds are set by `bounded`; times in seconds."""

    max_header_bytes: int
    headers_within: float
    written_within: float
    on_stalled: Callable[[], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._completed = False
        """Whether a request ended in what has just arrived: then it was not all head."""
        self._carried = False
        """Whether some of its body was in what has just arrived."""
        self._head_deadline: asyncio.TimerHandle | None = None
        self._rest_deadline: asyncio.TimerHandle | None = None
        """Until when the rest of a body may take whose request is answered already: nobody reads it."""
        self._fault: DuetError | None = None
        self._offers = False
        """Whether the head that was just read offers another protocol."""
        self._write_deadline: asyncio.TimerHandle | None = None
        self._unwritten = 0
        """Bytes that waited to leave when that deadline was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        self._has_rest()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self._in_head:
            self._rest_deadline = self.loop.call_later(self.headers_within, self.timeout_keep_alive_handler)
        self._expect_reader()

    def _expect_reader(self) -> None:
        """Nothing more is written until the client has taken something: it must, however slowly, in each span of
        `written_within`."""
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        self._write_deadline = None
        if self.transport.get_write_buffer_size():
            self._unwritten = self._waiting_bytes()
            self._write_deadline = self.loop.call_later(self.written_within, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """A client that takes nothing is cut off: to whoever answers it, it has left."""
        waits_for_it = self.flow.write_paused or self.cycle is None or self.cycle.response_complete
        if not waits_for_it or self._waiting_bytes() < self._unwritten:
            self._expect_reader()
            return
        self.on_stalled()
        socket = self.transport.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, _AT_ONCE)  # else the kernel would go on offering what it has
        self.transport.abort()

    def _waiting_bytes(self) -> int:
        """Here, and in the kernel, which takes more of us only when much of what it has is gone."""
        return self.transport.get_write_buffer_size() + _in_kernel(self.transport.get_extra_info("socket"))

    def _should_upgrade(self) -> bool:
        """There is no other protocol here, WebSocket included: an offer of one is passed over, as HTTP has it."""
        return False

    def data_received(self, data: bytes) -> None:
        if self._fault is not None:
            return  # refused already, and on its way to be closed
        if self._in_head and self._head_deadline is None:
            self._expect_head()
        was_in_head, self._completed, self._carried = self._in_head, False, False
        self._parse(data)
        told = self._completed or self._carried or was_in_head is not self._in_head
        if not told and self._fault is None:  # nothing but header, or behind it what says how the body is cut
            self._head_bytes += len(data)
            if self._head_bytes > self.max_header_bytes:
                self._refuse(self._too_large(self._head_bytes))

    def _parse(self, data: bytes) -> None:
        """As uvicorn's, but it reads on where a client offers another protocol: the body and all behind it follow."""
        self._unset_keepalive_if_required()
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserError:
                self.send_400_response("")
                return
            except httptools.HttpParserUpgrade as offer:
                data = self._head_without_offer() + data[offer.args[0] :]

    def _head_without_offer(self) -> bytes:
        """The request's head again, for a parser of its own: the former one is at its end."""
        first = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._offers = False
        return b"".join([first, *lines, b"\r\n"])

    def on_header(self, name: bytes, value: bytes) -> None:
        """One behind the body is nobody's to read: it would pass for one of the request's own."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._carried = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        lines = sum(len(name) + len(value) + _AROUND_LINE for name, value in self.headers)
        size = len(self.parser.get_method()) + len(self.url) + _AROUND_URL + lines
        coding = next((value for name, value in self.headers if name == b"transfer-encoding"), b"chunked")
        if size > self.max_header_bytes:
            self._fault = self._too_large(size)
        elif len(self.headers) > MOST_HEADERS:
            self._fault = HeadersTooLarge(
                f"the request has {len(self.headers)} header lines; expected at most {MOST_HEADERS}"
            )
        elif coding.strip().lower() != b"chunked":
            shown = coding[:_SHOWN].decode("latin-1")
            self._fault = UnknownCoding(f"the transfer-encoding is {shown!r}; expected chunked or none")
        elif self.parser.get_method() == b"CONNECT":
            self._fault = MethodNotAllowed("method CONNECT is not possible here: this is no proxy")
        if self._fault is not None:
            raise ValueError(self._fault.message)  # the parser ends, and send_400_response is next
        self._offers = self.parser.should_upgrade()
        if self._offers:
            return  # it is read again without the offer
        self._in_head, self._head_bytes = False, 0
        self._has_head()
        self._unset_keepalive_if_required()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self._offers:
            return
        super().on_message_complete()
        self._in_head = self._completed = True
        self._head_bytes = 0
        self._has_rest()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._expect_another()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] != "1.1":
            cycle.keep_alive = False
            app = _to_the_end(cycle, app)
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault or MalformedRequest("this is not an HTTP/1.1 request"))

    def _expect_head(self) -> None:
        self._head_deadline = self.loop.call_later(self.headers_within, self._late)

    def _has_head(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _has_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline.cancel()
            self._rest_deadline = None

    def _expect_another(self) -> None:
        """After a body that was whole only after its answer: what came of it ended the wait that follows an answer."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _late(self) -> None:
        self._refuse(BodyTimeout(f"the request's headers were not whole within {self.headers_within:g} s"))

    def _too_large(self, size: int) -> HeadersTooLarge:
        return HeadersTooLarge(
            f"the request line and headers have {size} bytes or more; expected at most {self.max_header_bytes}"
        )

    def _refuse(self, error: DuetError) -> None:
        """Says why and closes. An answer that is on its way is cut: its client sent nonsense after its request. Where
        a request has no answer yet, this is it."""
        self._fault = error
        self._has_head()
        cycle = self.cycle
        unanswered = cycle is not None and not cycle.response_started and not self.pipeline
        if cycle is None or (cycle.response_complete and self._in_head) or unanswered:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True  # whoever reads the body hears that nothing more comes, and says nothing
                cycle.message_event.set()
            status, headers, body = error_reply(error)
            lines = [name + b": " + value + b"\r\n" for name, value in (*headers, (b"connection", b"close"))]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()


def _to_the_end(cycle: RequestResponseCycle, app: Any) -> Any:
    """`app`, answering a client that knows no chunks: what has no length of its own ends where the connection does."""

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        ends_with_connection = False

        async def unframed(message: MutableMapping[str, Any]) -> None:
            nonlocal ends_with_connection
            if message["type"] == "http.response.start":
                ends_with_connection = all(name.lower() != b"content-length" for name, _ in message["headers"])
                if ends_with_connection:
                    cycle.chunked_encoding = False
            elif ends_with_connection:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, unframed)

    return answered


def _in_kernel(socket: Any) -> int:
    """Bytes that were sent and not taken yet, where the system tells (Linux does)."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])
    except OSError:
        return 0


def bounded(
    *,
    max_header_bytes: int,
    headers_within: float,
    written_within: float,
    on_stalled: Callable[[], None],
) -> type[BoundedProtocol]:
    """A protocol class for uvicorn, which makes one for each connection. `on_stalled` is told of each client that took
    nothing of its answer for `written_within` and was cut off."""
    bounds = {
        "max_header_bytes": max_header_bytes,
        "headers_within": headers_within,
        "written_within": written_within,
        "on_stalled": staticmethod(on_stalled),
    }
    return type("Bounded", (BoundedProtocol,), bounds)
