"""One sequence of tokens and the text they make, until something ends it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engines.sim import words
from engines.sim.ask import Ask


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A prompt whose KV is there: `state` is the KV, `cached` what usage calls cached tokens."""

    tokens: tuple[int, ...]
    state: int
    cached: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step adds. `finish` is None but at the end; `stop_reason` is the string or the id that ended it."""

    text: str
    token_ids: list[int]
    finish: str | None = None
    stop_reason: int | str | None = None


@dataclass(slots=True)
class Answer:
    """`index` is the choice's. Text that may be the start of a stop string is held back, as vLLM does."""

    index: int
    prompt: Prefilled
    ask: Ask
    limit: int
    end_every: int
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    stop_reason: int | str | None = None
    _state: int = 0
    _sent: int = 0

    def __post_init__(self) -> None:
        self._state = self.prompt.state

    def step(self) -> Delta:
        ask = self.ask
        early = len(self.tokens) < ask.min_tokens
        end_every = 0 if early or ask.ignore_eos else self.end_every
        token = words.next_token(self._state, ask.seed + self.index % ask.n, end_every=end_every)
        self._state = words.absorb(self._state, (token,))
        self.tokens.append(token)
        self.text += words.decode((token,))
        self._look_for_an_end(token, early=early)
        return Delta(self._ready(), [token], self.finish, self.stop_reason)

    def _look_for_an_end(self, token: int, *, early: bool) -> None:
        found = [s for s in self.ask.stop if s in self.text]
        stop = min(found, key=lambda s: self.text.index(s) + len(s), default=None)  # the one that is complete first
        if token == words.END:
            self.finish = "stop"
        elif not early and token in self.ask.stop_token_ids:
            self.finish, self.stop_reason = "stop", token
        elif not early and stop is not None:
            self.finish, self.stop_reason = "stop", stop
            self.text = self.text[: self.text.index(stop)]
        elif len(self.tokens) >= self.limit:
            self.finish = "length"

    def _ready(self) -> str:
        held = 0 if self.finish is not None else max((len(s) - 1 for s in self.ask.stop), default=0)
        upto = max(self._sent, len(self.text) - held)
        new, self._sent = self.text[self._sent : upto], upto
        return new
