"""A deterministic talker, twice: as hooks that a runner calls, and as plain arithmetic over one request.

What it says hangs on everything that can go wrong: a prompt row on its position, a decode row on the last hidden state,
on how many decode rows there were, and on the sampled id. All numbers are small integers in float32, so they are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

HIDDEN = 4
MODULUS = 509
"""Every number stays below: float32 holds all sums and products of two exactly."""


def prompt_row(token: int, position: int) -> int:
    return (token * 7 + position * 13 + 1) % MODULUS


def text_of(step: int) -> int:
    return (step * 29 + 3) % MODULUS


def hidden_of(row: int, position: int) -> int:
    return (row * 3 + position * 5 + 2) % MODULUS


def fed_row(token: int, hidden: int, text: int) -> int:
    return (token * 11 + hidden * 17 + text) % MODULUS


def codes_of(token: int, hidden: int, text: int) -> list[int]:
    return [token, (hidden * 19 + token) % MODULUS, (text * 23 + hidden) % MODULUS]


@dataclass(frozen=True)
class Call:
    """What a hook was told of one row."""

    hook: str
    request: str
    prompt_len: int
    computed: int
    is_prefill: bool
    ids: tuple[int, ...]


@dataclass
class Talker:
    """`batched` adds `preprocess_decode_batch`, `speaks` adds `talker_mtp`. `calls` are rows, `groups` batched calls,
    `mtp_batches` the ids of each MTP call."""

    batched: bool = False
    speaks: bool = True
    calls: list[Call] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    mtp_batches: list[list[int]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    has_preprocess: bool = True
    has_postprocess: bool = True

    def __post_init__(self) -> None:
        if self.batched:
            self.preprocess_decode_batch = self._decode_batch
        if self.speaks:
            self.talker_mtp: Callable[..., Any] | None = self._mtp

    def __call__(self, *, positions: Tensor, inputs_embeds: Tensor, **_: Any) -> Tensor:
        """The forward pass, row by row: `[tokens, hidden]`."""
        hidden = (inputs_embeds[:, 0].long() * 3 + positions * 5 + 2) % MODULUS
        return _wide(hidden)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        return _wide(input_ids)

    def preprocess(self, input_ids: Tensor, input_embeds: Tensor | None, **info: Any) -> Any:
        self._note("preprocess", input_ids, info)
        start = info["_omni_num_computed_tokens"]
        if info["_omni_is_prefill"]:
            rows = [prompt_row(t, start + k) for k, t in enumerate(input_ids.tolist())]
            return input_ids, _wide(torch.tensor(rows)), {}
        step = info.get("steps", 0)
        updates = {"steps": step + 1, "mtp_inputs": (info["last"], _wide(torch.tensor([text_of(step)])))}
        return input_ids, _wide(input_ids), updates

    def postprocess(self, hidden: Tensor, **info: Any) -> dict[str, Any]:
        return {"last": hidden[-1:]}

    def on_requests_finished(self, req_ids: Sequence[str]) -> None:
        self.finished += req_ids

    def _decode_batch(self, *, input_ids: Tensor, req_infos: Sequence[dict[str, Any]]) -> Any:
        self.groups.append([info["request_id"] for info in req_infos])
        for k, info in enumerate(req_infos):
            self._note("preprocess_decode_batch", input_ids[k : k + 1], info)
        steps = [info.get("steps", 0) for info in req_infos]
        updates = [{"steps": step + 1} for step in steps]
        if not self.speaks:
            return input_ids, _wide(input_ids), updates
        last = torch.cat([info["last"] for info in req_infos])
        text = _wide(torch.tensor([text_of(step) for step in steps]))
        return input_ids, _wide(input_ids), last, text, updates

    def _mtp(self, ids: Tensor, embeds: Tensor, last_hidden: Tensor, text_step: Tensor) -> tuple[Tensor, Tensor]:
        self.mtp_batches.append(ids.tolist())
        assert embeds[:, 0].tolist() == ids.tolist()
        inputs = list(zip(ids.tolist(), _narrow(last_hidden), _narrow(text_step), strict=True))
        return _wide(torch.tensor([fed_row(*i) for i in inputs])), torch.tensor([codes_of(*i) for i in inputs])

    def _note(self, hook: str, ids: Tensor, info: Mapping[str, Any]) -> None:
        told = info["_omni_prompt_len"], info["_omni_num_computed_tokens"], info["_omni_is_prefill"]
        self.calls.append(Call(hook, info["request_id"], *told, tuple(ids.tolist())))


class Alone:
    """The same request by itself, never chunked, never disturbed: what each position must be fed and each frame say."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.codes: dict[int, list[int]] = {}
        self._steps = 0

    def prompt(self, tokens: Sequence[int]) -> None:
        """Adds prompt positions."""
        for token in tokens:
            self.rows.append(prompt_row(token, len(self.rows)))

    def speak(self, token: int) -> None:
        """Adds a decode position."""
        hidden, text = hidden_of(self.rows[-1], len(self.rows) - 1), text_of(self._steps)
        self.codes[len(self.rows)] = codes_of(token, hidden, text)
        self.rows.append(fed_row(token, hidden, text))
        self._steps += 1

    def take_back(self, position: int) -> None:
        """Positions from there on, all of them spoken, do not count."""
        for dropped in range(position, len(self.rows)):
            del self.codes[dropped]
            self._steps -= 1
        del self.rows[position:]


def _wide(numbers: Tensor) -> Tensor:
    """`[n]` -> `[n, hidden]`, the number in every column."""
    return numbers.to(torch.float32)[:, None].expand(-1, HIDDEN).contiguous()


def _narrow(rows: Tensor) -> list[int]:
    return [int(v) for v in rows[:, 0].tolist()]
