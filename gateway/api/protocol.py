"""HTTP/1.1 as uvicorn speaks it, with bounds of our own and OpenAI's error shape for what is no HTTP request.

uvicorn's protocol takes headers of any length, waits for them for ever, and answers nonsense in plain text.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from common.errors import BodyTimeout, DuetError, HeadersTooLarge, MalformedBody
from gateway.wire.errors import error_reply

_SHOWN = 80
"""Bytes of a header that an error message shows."""


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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._completed = False
        """Whether a request ended in what has just arrived: then it was not all head."""
        self._carried = False
        """Whether some of its body was in what has just arrived."""
        self._head_deadline: asyncio.TimerHandle | None = None
        self._fault: DuetError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._fault is not None:
            return  # refused already, and on its way to be closed
        if self._in_head and self._head_deadline is None:
            self._expect_head()
        was_in_head, self._completed, self._carried = self._in_head, False, False
        super().data_received(data)
        told = self._completed or self._carried or was_in_head is not self._in_head
        if not told and self._fault is None:  # nothing but header, or behind it what says how the body is cut
            self._head_bytes += len(data)
            if self._head_bytes > self.max_header_bytes:
                self._refuse(self._too_large(self._head_bytes))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One behind the body is nobody's to read: it would pass for one of the request's own."""
        if self._in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._carried = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        coding = next((value for name, value in self.headers if name == b"transfer-encoding"), b"chunked")
        if size > self.max_header_bytes:
            self._fault = self._too_large(size)
        elif coding.strip().lower() != b"chunked":
            shown = coding[:_SHOWN].decode("latin-1")
            self._fault = UnknownCoding(f"the transfer-encoding is {shown!r}; expected chunked or none")
        if self._fault is not None:
            raise ValueError(self._fault.message)  # the parser ends, and send_400_response is next
        self._in_head, self._head_bytes = False, 0
        self._has_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = self._completed = True
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._fault or MalformedRequest("this is not an HTTP/1.1 request"))

    def _expect_head(self) -> None:
        self._head_deadline = self.loop.call_later(self.headers_within, self._late)

    def _has_head(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

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


def bounded(*, max_header_bytes: int, headers_within: float) -> type[BoundedProtocol]:
    """A protocol class for uvicorn, which makes one for each connection."""
    bounds = {"max_header_bytes": max_header_bytes, "headers_within": headers_within}
    return type("Bounded", (BoundedProtocol,), bounds)
