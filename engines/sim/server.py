"""The server protocol of the simulator: uvicorn's, with a way for the application to break a connection off."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BREAK_OFF = "sim.break_off"
"""In the scope's `extensions`: a function that ends the connection at once, as a dying engine does."""


class SimProtocol(HttpToolsProtocol):
    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: dict[str, Any] = {BREAK_OFF: self.transport.abort}
        self.scope["extensions"] = extensions
