"""Multi-token prediction, run by the runner: all decode rows of a step in one call of the model's `talker_mtp`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engines.runner.errors import HookFailed, HookResultInvalid, PhaseError, SeedInvalid, error_of
from engines.runner.hooks import Hooks
from engines.runner.memory import Memory, nested_in, owned
from engines.runner.rows import Row
from engines.runner.seeds import SEED, Generators, seed_of

SAMPLING = ("do_sample", "temperature", "top_k", "top_p")
Seeds = Sequence[torch.Generator | None]
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """The rows that MTP takes in this step, in row order, each with its request's memory."""

    rows: list[Row] = field(default_factory=list)
    infos: list[Memory] = field(default_factory=list)
    extra_args: list[Mapping[str, Any]] = field(default_factory=list)
    """What each row's client sent."""

    @property
    def requests(self) -> list[str]:
        return [row.request for row in self.rows]

    @property
    def starts(self) -> list[int]:
        """Places in the step's flat buffers."""
        return [row.start for row in self.rows]


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
        context: Callable[[], AbstractContextManager[Any]],
        capacity: int,
        hidden: int,
        width: int,
        sampling: Mapping[str, Any],
    ) -> None:
        """`make(*size, dtype=None)` makes a buffer on the device, `context` is what `talker_mtp` runs in, `sampling`
        are the talker's settings for sampling."""
        self._hooks = hooks
        self._context = context
        self.width = width
        self._buffers = (
            make(capacity, dtype=torch.int32),
            make(capacity, hidden),
            make(capacity, width),
            make(capacity, width),
        )
        self._used: list[Tensor] = []
        """The buffers' first rows, as many as were last filled: that mostly stays the same from step to step."""
        self._sampling = {name: sampling.get(name) for name in SAMPLING if hooks.mtp_knows(name)}
        self._seeded = hooks.mtp_knows("generator") or hooks.mtp_takes_generators
        self._said_unseeded = False
        self.generators = Generators(self._buffers[0].device)
        self.taken = Taken()

    def begin(self) -> None:
        """Forgets what an earlier step left."""
        self.taken = Taken()

    def add(
        self,
        rows: Sequence[Row],
        infos: Sequence[Memory],
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        extra_args: Sequence[Mapping[str, Any]],
    ) -> None:
        """One or more rows; `inputs` are `[n]`, `[n, hidden]`, `[n, mtp]`, `[n, mtp]`.

        They are copied at once: a hook may hand over a buffer that it fills anew for the next rows.
        """
        first = len(self.taken.rows)
        for buffer, tensor in zip(self._buffers, inputs, strict=True):
            buffer[first : first + len(rows)].copy_(tensor)
        self.taken.rows += rows
        self.taken.infos += infos
        self.taken.extra_args += extra_args

    def run(self, taken: Taken, embeds: Tensor) -> Tensor | None:
        """Predicts for `taken` from what was added, writes each row's `embeds[start]`, and keeps its codes in its info.

        Returns the codes `[n, groups]`, None if the model gives none. Raises PhaseError.
        """
        count = len(taken.rows)
        inputs = self._filled(count)
        seeds = self._seeds(taken)
        with self._context():
            if count > 1 and any(seeds) and not self._hooks.mtp_takes_generators:
                out, codes = self._one_by_one(taken, inputs, seeds)
            else:
                out, codes = self._call(taken, slice(0, count), inputs, seeds)
        try:
            _scatter(embeds, taken.starts, out)
            if codes is not None:
                self._keep(taken, owned(codes, self._hooks.codes_key in self._hooks.on_device))
        except RuntimeError as e:
            raise self._error(HookResultInvalid, taken.rows, f"what talker_mtp returned cannot be copied: {e}") from e
        return codes

    def _filled(self, count: int) -> list[Tensor]:
        if not self._used or len(self._used[0]) != count:
            self._used = [buffer[:count] for buffer in self._buffers]
        return self._used

    def _one_by_one(self, taken: Taken, inputs: Sequence[Tensor], seeds: Seeds) -> tuple[Tensor, Tensor | None]:
        """One generator is one stream: what a row draws from it must not hang on who else is in the batch.

        Each answer is copied before the next call: a model may answer in a buffer that it uses again.
        """
        outs: list[Tensor] = []
        codes: list[Tensor | None] = []
        for k in range(len(taken.rows)):
            part = slice(k, k + 1)
            out, own = self._call(taken, part, [one[part] for one in inputs], seeds)
            outs.append(out.clone())
            codes.append(None if own is None else own.clone())
        return torch.cat(outs), self._joined(taken, codes)

    def _call(self, taken: Taken, part: slice, inputs: Sequence[Tensor], seeds: Seeds) -> tuple[Tensor, Tensor | None]:
        """The model's answer for some of the rows, whose `inputs` these are, checked."""
        hooks, rows = self._hooks, taken.rows[part]
        options: dict[str, Any] = dict(self._sampling) | self._randomness(seeds[part])
        if hooks.mtp_takes_infos:
            options |= {"req_ids": [row.request for row in rows], "req_infos": taken.infos[part]}
        assert hooks.mtp is not None
        try:
            result = hooks.mtp(*inputs, **options)
        except Exception as e:
            raise self._error(HookFailed, rows, f"talker_mtp raised {type(e).__name__}: {e}") from e
        count, hidden = len(rows), self._buffers[1].shape[1]
        match result:
            case (Tensor() as out, (Tensor() | None) as codes) if tuple(out.shape) == (count, hidden) and (
                codes is None or (codes.ndim == 2 and len(codes) == count)
            ):
                return out, codes
        expected = f"embeddings [{count}, {hidden}] and codes [{count}, groups] or None"
        raise self._error(HookResultInvalid, rows, f"talker_mtp returned {described(result)}; expected {expected}")

    def _joined(self, taken: Taken, codes: Sequence[Tensor | None]) -> Tensor | None:
        known = [c for c in codes if c is not None]
        if not known:
            return None
        if len(known) < len(codes) or len({c.shape[1] for c in known}) > 1:
            found = ", ".join(described(c) for c in codes)
            message = (
                f"talker_mtp returned codes {found} for the rows of one step; expected [1, groups] for each, or None"
            )
            raise self._error(HookResultInvalid, taken.rows, message)
        return torch.cat(known)

    def _randomness(self, seeds: Seeds) -> dict[str, Any]:
        """A row by itself has `generator`, if the model has a parameter for it; rows together have `generators`."""
        if not any(seeds):
            return {}
        if len(seeds) == 1 and self._hooks.mtp_knows("generator"):
            return {"generator": seeds[0]}
        return {"generators": list(seeds)}

    def _seeds(self, taken: Taken) -> Seeds:
        """A generator for each row whose request brought a seed. A model whose MTP has no parameter for one draws
        nothing that a seed could fix: that is said once."""
        found: list[torch.Generator | None] = [None] * len(taken.rows)
        if not any(taken.extra_args):
            return found
        for k, (row, extra_args) in enumerate(zip(taken.rows, taken.extra_args, strict=True)):
            if SEED not in extra_args:
                continue
            try:
                if self._seeded:
                    found[k] = self.generators.of(row.request, extra_args)
                elif seed_of(extra_args) is not None and not self._said_unseeded:
                    self._said_unseeded = True
                    logger.warning(
                        "model %s: its talker_mtp has no generator, %s changes nothing", self._hooks.model, SEED
                    )
            except ValueError as e:
                raise self._error(SeedInvalid, [row], str(e)) from None
        return found

    def _keep(self, taken: Taken, kept: Tensor) -> None:
        """`kept` are the codes `[n, groups]`, a copy of them."""
        outer, inner = self._hooks.codes_key
        validity = self._hooks.validity_key
        for row, info, own in zip(taken.rows, taken.infos, kept.split(1), strict=True):
            try:
                nested_in(info, outer)[inner] = own
                if validity is not None:
                    nested_in(info, validity[0])[validity[1]] = torch.ones((), dtype=torch.bool, device=kept.device)
            except ValueError as e:
                raise self._error(HookResultInvalid, [row], f"codes cannot be kept: {e}") from None

    def _error(self, kind: type[PhaseError], rows: Sequence[Row], message: str) -> PhaseError:
        return error_of(kind, self._hooks.model, rows, message)


def described(value: Any) -> str:
    """A hook's result for an error message: types and shapes, never contents."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(described(v) for v in value)})"
    return type(value).__name__


def _scatter(embeds: Tensor, starts: Sequence[int], rows: Tensor) -> None:
    """`embeds[start] = row` for each; one copy where the rows stand side by side."""
    first = starts[0]
    if starts[-1] - first == len(starts) - 1:  # starts grow
        embeds[first : first + len(starts)].copy_(rows)
    else:
        places = torch.tensor(starts, dtype=torch.long).to(embeds.device, non_blocking=True)
        embeds.index_copy_(0, places, rows.to(dtype=embeds.dtype))
