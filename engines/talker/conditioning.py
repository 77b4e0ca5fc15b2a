"""All that is known so far of one request's Thinker side, put together from the streams of its engines. Pure.

Every stream tells the ids from position 0 on, and hidden states of what its engine computed. Frames of several streams
come in any order between them. What two engines both tell must be the same. The last stream is of the engine that
decodes: it alone says how the text goes on and where it ends. The others are needed for hidden states that it has not.
"""

from __future__ import annotations

from common.channel.frame import Frame, Rows
from common.conditioning import MEDIA, ConditioningInvalid, read


class Conditioning:
    """Grows with `add`; `end` is called once for each of its streams, which are numbered from 0.

    `ids` are the known ids from position 0 on. Rows are kept as buffers: `media[position]` is a frame's array and the
    row in it.
    """

    def __init__(self, streams: int) -> None:
        self.prompt_len: int | None = None
        self.ids: list[int] = []
        self.media: dict[int, tuple[Rows, int]] = {}
        self.failure: str | None = None
        self._told = [0] * streams
        self._open = set(range(streams))
        self._lost: list[str] = []

    @property
    def ended(self) -> bool:
        """Whether nothing more will be said."""
        return self._decodes not in self._open

    @property
    def lost(self) -> str:
        """Why streams that may not be needed broke off; empty if none did."""
        return "; ".join(self._lost)

    @property
    def _decodes(self) -> int:
        return len(self._told) - 1

    @property
    def prompt(self) -> list[int] | None:
        """The Thinker's prompt; None until all of it is known."""
        return self.ids[: self.prompt_len] if self.prompt_is_known else None

    @property
    def prompt_is_known(self) -> bool:
        return self.prompt_len is not None and len(self.ids) >= self.prompt_len

    @property
    def prompt_is_told(self) -> bool:
        """Whether no stream will tell more rows of the prompt."""
        return self.prompt_is_known and all(
            told >= (self.prompt_len or 0) or stream not in self._open for stream, told in enumerate(self._told)
        )

    def add(self, stream: int, frame: Frame) -> None:
        """Raises ConditioningInvalid for a frame that does not go with the others."""
        told = read(frame)
        if self.prompt_len not in (None, told.prompt_len):
            raise ConditioningInvalid(
                f"a prompt of {told.prompt_len} tokens: expected {self.prompt_len}, as other frames of the request have"
            )
        if told.begin != self._told[stream]:
            raise ConditioningInvalid(f"a frame begins at position {told.begin}: expected {self._told[stream]}")
        known = self.ids[told.begin : told.end]
        if tuple(known) != told.ids[: len(known)]:
            raise ConditioningInvalid(f"two engines tell other ids for positions {told.begin} to {told.end - 1}")
        self.prompt_len = told.prompt_len
        for row, at in enumerate(told.media_at):
            self.media.setdefault(at, (told.rows[MEDIA], row))
        self.ids += told.ids[len(known) :]
        self._told[stream] = told.end

    def end(self, stream: int) -> None:
        """The stream is whole. Raises ConditioningInvalid if nothing more will be said, and the prompt is not known."""
        self._open.discard(stream)
        if self.ended and not self.prompt_is_known:
            raise ConditioningInvalid(f"{len(self.ids)} positions of a prompt of {self.prompt_len} tokens are known")

    def lose(self, stream: int, why: str) -> None:
        """The stream broke off: that is a failure only of the one that decodes."""
        if stream == self._decodes:
            self.fail(why)
        else:
            self._open.discard(stream)
            self._lost.append(why)

    def fail(self, why: str) -> None:
        """The first reason counts."""
        self.failure = self.failure or why

    def spoken(self, text_from: int) -> int:
        """How many text tokens are known, from position `text_from` on."""
        return max(len(self.ids) - text_from, 0)

    def missing(self, positions: tuple[int, ...]) -> list[int]:
        """Those of `positions` without a hidden state."""
        return [at for at in positions if at not in self.media]
