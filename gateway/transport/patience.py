"""How long a reply is waited for: until its first content, from each content to the next, and in all. Pure: times are
seconds of one clock that never goes back."""

from __future__ import annotations

from gateway.transport.port import Deadlines


class Patience:
    """How much longer a reply is waited for. Only waits count: a slow reader is no fault of the engine."""

    def __init__(self, bounds: Deadlines, since: float, now: float) -> None:
        """`since` is when the request began to leave."""
        self._idle = bounds.idle
        self._left = bounds.idle if bounds.first is None else since + bounds.first - now
        self._end = None if bounds.whole is None else since + bounds.whole
        self._late = f"sent nothing for {bounds.idle:g} s"
        if bounds.first is not None:
            self._late = f"sent no first token within {bounds.first:g} s"
        self._unfinished = f"sent no whole reply within {bounds.whole:g} s" if bounds.whole is not None else ""

    def left(self, now: float) -> float:
        """Seconds from now until it is at its end, `math.inf` for ever; none or less where it is."""
        return self._left if self._end is None else min(self._left, self._end - now)

    def waited(self, seconds: float) -> None:
        """For what was no content."""
        self._left -= seconds

    def renew(self) -> None:
        self._left = self._idle
        self._late = f"sent nothing for {self._idle:g} s"

    def why(self, now: float) -> str:
        """What the engine did not do, once it is at its end."""
        return self._unfinished if self._end is not None and now >= self._end else self._late
