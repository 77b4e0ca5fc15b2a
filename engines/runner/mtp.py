"""Multi-token prediction, run by the runner: all decode rows of a step in one call of the model's `talker_mtp`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engines.runner.errors import HookFailed, HookResultInvalid
from engines.runner.hooks import Hooks
from engines.runner.memory import owned

SEED = "tts_local_seed"
"""A request's own seed for MTP, among its sampling parameters' extra arguments."""
SAMPLING = ("do_sample", "temperature", "top_k", "top_p")


@dataclass(slots=True)
class Taken:
    """The rows that MTP takes in this step, in row order; all lists are aligned.

    `starts` are places in the step's flat buffers, `positions` are absolute in their requests.
    """

    requests: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    infos: list[dict[str, Any]] = field(default_factory=list)

    def add(self, request: str, row: int, start: int, position: int, info: dict[str, Any]) -> None:
        self.requests.append(request)
        self.rows.append(row)
        self.starts.append(start)
        self.positions.append(position)
        self.infos.append(info)


class Mtp:
    """Gathers rows, calls the model, puts what comes back where it belongs.

    The four inputs live in buffers that are made once: ids `[n]` int32, embeddings `[n, hidden]`, last hidden states
    and text steps `[n, mtp]` each, in the runner's dtype.
    """

    def __init__(
        self,
        hooks: Hooks,
        *,
        make: Callable[..., Tensor],
        capacity: int,
        hidden: int,
        width: int,
        sampling: Mapping[str, Any],
    ) -> None:
        """`make(*size, dtype=None)` makes a buffer on the device; `sampling` are the talker's settings for sampling."""
        self._hooks = hooks
        self.width = width
        self._buffers = (
            make(capacity, dtype=torch.int32),
            make(capacity, hidden),
            make(capacity, width),
            make(capacity, width),
        )
        self._parts: tuple[list[Tensor], ...] = ([], [], [], [])
        self._sampling = {name: sampling.get(name) for name in SAMPLING if self._knows(name)}
        self._generators: dict[str, torch.Generator] = {}
        self.taken = Taken()

    def begin(self) -> None:
        """Forgets what an earlier step left."""
        self.taken = Taken()
        for parts in self._parts:
            parts.clear()

    def add(self, ids: Tensor, embeds: Tensor, last_hidden: Tensor, text_step: Tensor) -> None:
        """One or more rows: `[n]`, `[n, hidden]`, `[n, mtp]`, `[n, mtp]`."""
        device = self._buffers[0].device
        for parts, tensor in zip(self._parts, (ids, embeds, last_hidden, text_step), strict=True):
            parts.append(tensor if tensor.device == device else tensor.to(device))

    def forget(self, request: str) -> None:
        self._generators.pop(request, None)

    def run(self, taken: Taken, embeds: Tensor) -> Tensor | None:
        """Predicts for `taken` from what was added, writes each row's `embeds[start]`, and keeps its codes in its info.

        Returns the codes `[n, groups]`, None if the model gives none. Raises HookFailed, HookResultInvalid.
        """
        count = len(taken.requests)
        inputs = [buffer[:count] for buffer in self._buffers]
        for buffer, parts in zip(inputs, self._parts, strict=True):
            torch.cat(parts, out=buffer)
        seeds = [self._generator(r, info) for r, info in zip(taken.requests, taken.infos, strict=True)]
        if any(seeds) and count > 1 and not self._hooks.mtp_takes_generators:
            # One generator is one stream: what a row draws from it must not hang on who else is in the batch.
            singles = [self._call(taken, slice(k, k + 1), inputs, seeds) for k in range(count)]
            out = torch.cat([single for single, _ in singles])
            codes = _joined([codes for _, codes in singles])
        else:
            out, codes = self._call(taken, slice(0, count), inputs, seeds)
        _scatter(embeds, taken.starts, out)
        if codes is not None:
            self._keep(taken, codes)
        return codes

    def _call(
        self, taken: Taken, part: slice, inputs: Sequence[Tensor], seeds: Sequence[torch.Generator | None]
    ) -> tuple[Tensor, Tensor | None]:
        """The model's answer for some of the rows, checked."""
        hooks, requests, rows = self._hooks, taken.requests[part], taken.rows[part]
        options: dict[str, Any] = dict(self._sampling)
        if any(seeds[part]):
            options |= {"generator": seeds[part][0]} if len(requests) == 1 else {"generators": list(seeds[part])}
        if hooks.mtp_takes_infos:
            options |= {"req_ids": requests, "req_infos": taken.infos[part]}
        assert hooks.mtp is not None
        try:
            result = hooks.mtp(*(tensor[part] for tensor in inputs), **options)
        except Exception as e:
            raise HookFailed(
                f"talker_mtp raised {type(e).__name__}: {e}", model=hooks.model, requests=requests, rows=rows
            ) from e
        count, hidden = len(requests), self._buffers[1].shape[1]
        match result:
            case (Tensor() as out, (Tensor() | None) as codes) if tuple(out.shape) == (count, hidden) and (
                codes is None or (codes.ndim == 2 and len(codes) == count)
            ):
                return out, codes
        raise HookResultInvalid(
            f"talker_mtp returned {described(result)}; expected embeddings [{count}, {hidden}] and codes "
            f"[{count}, groups] or None",
            model=hooks.model,
            requests=requests,
            rows=rows,
        )

    def _keep(self, taken: Taken, codes: Tensor) -> None:
        outer, inner = self._hooks.codes_key
        kept = owned(codes, stays=(outer, inner) in self._hooks.on_device)
        for info, row in zip(taken.infos, kept.split(1), strict=True):
            info.setdefault(outer, {})[inner] = row

    def _knows(self, option: str) -> bool:
        return self._hooks.mtp_options is None or option in self._hooks.mtp_options

    def _generator(self, request: str, info: Mapping[str, Any]) -> torch.Generator | None:
        seed = info["sampling_extra_args"].get(SEED)
        if seed is None:
            return None
        found = self._generators.get(request)
        if found is None:
            found = torch.Generator(device=self._buffers[0].device)
            found.manual_seed(int(seed))
            self._generators[request] = found
        return found


def described(value: Any) -> str:
    """A hook's result for an error message: types and shapes, never contents."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(described(v) for v in value)})"
    return type(value).__name__


def _joined(codes: Sequence[Tensor | None]) -> Tensor | None:
    known = [c for c in codes if c is not None]
    return torch.cat(known) if len(known) == len(codes) else None


def _scatter(embeds: Tensor, starts: Sequence[int], rows: Tensor) -> None:
    """`embeds[start] = row` for each; one copy where the rows stand side by side."""
    first = starts[0]
    if starts[-1] - first == len(starts) - 1:  # starts grow
        embeds[first : first + len(starts)].copy_(rows)
    else:
        places = torch.tensor(starts, dtype=torch.long).to(embeds.device, non_blocking=True)
        embeds.index_copy_(0, places, rows.to(dtype=embeds.dtype))
