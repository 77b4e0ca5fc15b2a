"""One step's rows on their way through a model's hooks, into the embeddings that the forward pass reads.

    row ── cut ──┬─ prompt ───> preprocess                                   ──> embeddings
                 ├─ replayed ──────────── rows as they were fed ───────────────> embeddings
                 └─ new ──────> preprocess, or preprocess_decode_batch ─> MTP ─> embeddings, codes

Rows are taken in the batch's order. Adjacent decode rows wait for each other, if the model has a hook for them; the
next row of another kind sends them off, so MTP's order is the rows' order too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engines.runner.errors import HookFailed, HookResultInvalid, MtpInputsMissing, PhaseError, ReplayLost, error_of
from engines.runner.fed import Fed
from engines.runner.hooks import Hooks
from engines.runner.kept import Kept
from engines.runner.memory import EXTRA_ARGS, Memory, merge, tell
from engines.runner.mtp import Mtp, described
from engines.runner.rows import Row

WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
"""What ids may be: others would lose something on their way into MTP's."""


@dataclass(slots=True)
class Step:
    """What one step needs, and what it has found so far.

    `ids` `[tokens]` and `embeds` `[tokens, hidden]` are the runner's flat buffers; `given` says that `embeds` already
    holds what the prompt brought (images, say, or embeddings). `kept` is kept between steps. `settings` tells what a
    request's sampling parameters say, and `sent` what of them its client sent for the model, whatever that makes of it.
    """

    hooks: Hooks
    mtp: Mtp | None
    kept: Kept
    settings: Callable[[str], Memory]
    sent: Callable[[str], Mapping[str, Any]]
    ids: Tensor
    embeds: Tensor
    given: bool
    replayed: dict[int, int] = field(default_factory=dict)
    """Positions that were fed again, by row."""
    _waiting: list[Row] = field(default_factory=list)
    _infos: list[Memory] = field(default_factory=list)
    _decoded: list[tuple[Fed, int, int]] = field(default_factory=list)
    """Positions that decode feeds, with their places in the buffers."""

    def feed(self, rows: Sequence[Row]) -> None:
        """Everything up to MTP, which the runner calls. Raises PhaseError."""
        for row in rows:
            fed = self.kept.fed_of(row)
            if row.phase.mtp_eligible and row.phase.num_computed >= fed.until:
                if row.phase.num_computed > fed.until:
                    self._unbroken(row, fed)
                self._decode(row, fed)
            else:
                self._cut(row, fed)
        self._flush()

    def keep(self) -> None:
        """After MTP: keeps the rows that decode has fed."""
        if self._decoded:
            slots = self.kept.pool.put(self.embeds, self.ids, [start for _, _, start in self._decoded])
            for (fed, position, _), slot in zip(self._decoded, slots, strict=True):
                fed.keep(position, slot)

    def _cut(self, row: Row, fed: Fed) -> None:
        cut = row.phase.cut(fed.until)
        self._flush()
        if cut.prompt is not None:
            self.kept.memory_of(row).update(self.settings(row.request))
            part = row.part(cut.prompt)
            self._scalar(part, self._told(part), mtp=None)
            if fed.until:  # a prompt into which earlier outputs were folded
                self._replay(row, fed, fed.known(range(cut.prompt.num_computed, cut.prompt.end)))
        if cut.replayed:
            if len(fed.known(cut.replayed)) < len(cut.replayed):
                raise self._lost(row, cut.replayed)
            self._replay(row, fed, cut.replayed)
        if cut.new is not None:
            self._new(row.part(cut.new), fed)

    def _replay(self, row: Row, fed: Fed, positions: Sequence[int]) -> None:
        if not positions:
            return
        offset = row.start - row.phase.num_computed
        rows, ids = self.kept.pool.get(fed.slots(positions))
        for k, position in enumerate(positions):
            self.embeds[offset + position] = rows[k]
            self.ids[offset + position] = ids[k]
        self.replayed[row.index] = self.replayed.get(row.index, 0) + len(positions)

    def _new(self, row: Row, fed: Fed) -> None:
        """Positions that decode has not fed yet."""
        self._unbroken(row, fed)
        if row.phase.batched_decode_eligible:
            self._decode(row, fed)
            return
        known = range(row.phase.num_computed, min(row.phase.end, row.phase.num_tokens))  # nobody has verified a draft
        self._decoded += [(fed, position, row.start + k) for k, position in enumerate(known)]
        self._flush()
        self._scalar(row, self._told(row, fed), mtp=None)

    def _unbroken(self, row: Row, fed: Fed) -> None:
        """New positions begin behind what has been fed, and one known token is new at most: others were sampled behind
        rows that another engine has fed, and which are not known here. Raises ReplayLost."""
        phase = row.phase
        if phase.num_computed > max(phase.prompt_len, fed.until) or phase.num_tokens - phase.num_computed > 1:
            raise self._lost(row, range(max(phase.prompt_len, fed.until), phase.end))

    def _decode(self, row: Row, fed: Fed) -> None:
        """One new position: `preprocess_decode_batch` or `preprocess`, and MTP."""
        self._decoded.append((fed, row.phase.num_computed, row.start))
        info = self._told(row, fed)
        if self.hooks.decode_batch is not None:
            self._waiting.append(row)
            self._infos.append(info)
        else:
            self._scalar(row, info, self.mtp)

    def _scalar(self, row: Row, info: Memory, mtp: Mtp | None) -> None:
        """`preprocess` for one row, or a part of one; `mtp` takes it."""
        start, stop = row.start, row.stop
        own_ids, given = self.ids[start:stop], self.embeds[start:stop] if self.given else None
        try:
            result = self.hooks.preprocess(input_ids=own_ids, input_embeds=given, **info)
        except Exception as e:
            raise self._failed("preprocess", [row], e) from e
        match result:
            case (Tensor() as ids, Tensor() as embeds, Mapping() as updates) if self._fit(stop - start, ids, embeds):
                pass
            case other:
                raise self._invalid("preprocess", [row], other, "updates")
        inputs = self._mtp_inputs(mtp.width, row, updates) if mtp is not None else ()
        try:
            self._write(start, stop, own_ids, ids, embeds)
            if mtp is not None:
                mtp.add([row], [info], (shaped(ids, 1), embeds, *inputs), [self.sent(row.request)])
        except RuntimeError as e:
            raise self._untaken("preprocess", [row], e) from e
        self._merge("preprocess", row, info, updates)

    def _mtp_inputs(self, width: int, row: Row, updates: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        match updates.get("mtp_inputs"):
            case (Tensor() as last_hidden, Tensor() as text_step) if rows_of_width(
                last_hidden, 1, width
            ) and rows_of_width(text_step, 1, width):
                return shaped(last_hidden, 1, width), shaped(text_step, 1, width)
            case None:
                raise self._error(
                    MtpInputsMissing,
                    [row],
                    "preprocess returned no mtp_inputs for a decode row; expected (last hidden, text step)",
                )
            case other:
                message = f"mtp_inputs is {described(other)}; expected two tensors [1, {width}]"
                raise self._error(HookResultInvalid, [row], message)

    def _flush(self) -> None:
        """`preprocess_decode_batch` for the rows that wait. They stand side by side in the buffers."""
        if not self._waiting:
            return
        rows, infos = self._waiting, self._infos
        self._waiting, self._infos = [], []
        start, stop = rows[0].start, rows[-1].stop
        assert self.hooks.decode_batch is not None
        own_ids = self.ids[start:stop]
        try:
            result = self.hooks.decode_batch(input_ids=own_ids, req_infos=list(infos))
        except Exception as e:
            raise self._failed("preprocess_decode_batch", rows, e) from e
        ids, embeds, inputs, updates = self._of_batch(rows, result)
        try:
            self._write(start, stop, own_ids, ids, embeds)
            if self.mtp is not None:
                sent = [self.sent(row.request) for row in rows]
                self.mtp.add(rows, infos, (shaped(ids, len(rows)), embeds, *inputs), sent)
        except RuntimeError as e:
            raise self._untaken("preprocess_decode_batch", rows, e) from e
        for row, info, update in zip(rows, infos, updates, strict=True):
            if update:
                self._merge("preprocess_decode_batch", row, info, update)

    def _of_batch(
        self, rows: Sequence[Row], result: Any
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Sequence[Mapping[str, Any]]]:
        """The hook's result, checked: ids, embeddings, what MTP needs besides (nothing without it), updates."""
        count, expected = len(rows), f"{len(rows)} updates"
        width = self.mtp.width if self.mtp is not None else None
        if width is not None:
            expected = f"last hidden and text step [{count}, {width}], {expected}"
        match result, width:
            case (Tensor() as ids, Tensor() as embeds, *inputs, list() | tuple() as updates), _ if (
                self._fit(count, ids, embeds)
                and len(inputs) == (0 if width is None else 2)
                and all(isinstance(one, Tensor) and rows_of_width(one, count, width or 0) for one in inputs)
                and len(updates) == count
                and all(isinstance(update, Mapping) for update in updates)
            ):
                return ids, embeds, tuple(shaped(one, count, width or 0) for one in inputs), updates
        raise self._invalid("preprocess_decode_batch", rows, result, expected)

    def _told(self, row: Row, fed: Fed | None = None) -> Memory:
        """What a hook is told of a row: the request's memory, with the phase as it is now, whatever was in there.

        With `fed` the row is decode, and what is remembered before it may be needed once more.
        """
        info = self.kept.memory_of(row)
        if fed is not None and self.kept.rewinds:
            self.kept.begin(row, fed, info)
        if EXTRA_ARGS not in info:
            info.update(self.settings(row.request))
        tell(info, row)
        return info

    def _fit(self, count: int, ids: Tensor, embeds: Tensor) -> bool:
        return (
            ids.numel() == count
            and ids.dtype in WHOLE
            and embeds.shape == (count, self.embeds.shape[1])
            and embeds.is_floating_point()
        )

    def _write(self, start: int, stop: int, own_ids: Tensor, ids: Tensor, embeds: Tensor) -> None:
        """A hook mostly returns the ids that it was given: those stand there already."""
        self.embeds[start:stop] = embeds
        if ids is not own_ids:
            own_ids.copy_(ids.reshape(-1))

    def _merge(self, hook: str, row: Row, info: Memory, updates: Mapping[str, Any]) -> None:
        try:
            merge(info, updates, self.hooks.on_device)
        except (ValueError, RuntimeError) as e:
            raise self._error(HookResultInvalid, [row], f"updates of {hook}: {e}") from e

    def _invalid(self, hook: str, rows: Sequence[Row], result: Any, more: str) -> PhaseError:
        count = sum(row.phase.span for row in rows)
        expected = f"ids [{count}], embeddings [{count}, {self.embeds.shape[1]}], {more}"
        return self._error(
            HookResultInvalid,
            rows,
            f"{hook} returned {described(result)}; expected {expected}; ids are integers, the others floats",
        )

    def _untaken(self, hook: str, rows: Sequence[Row], e: Exception) -> PhaseError:
        """Torch cannot copy it to where it belongs: a tensor without numbers, say, or a sparse one."""
        return self._error(HookResultInvalid, rows, f"what {hook} returned cannot be copied: {e}")

    def _failed(self, hook: str, rows: Sequence[Row], e: Exception) -> PhaseError:
        return self._error(HookFailed, rows, f"{hook} raised {type(e).__name__}: {e}")

    def _lost(self, row: Row, positions: range) -> PhaseError:
        said = f"positions {positions.start} to {positions.stop - 1} are decode's, and this engine has not fed them"
        return self._error(ReplayLost, [row], f"{said}: {row.phase}")

    def _error(self, kind: type[PhaseError], rows: Iterable[Row], message: str) -> PhaseError:
        return error_of(kind, self.hooks.model, rows, message)


def rows_of_width(tensor: Tensor, count: int, width: int) -> bool:
    """Whether it is `[count, width]`, but for dimensions of 1: as many numbers in another shape are other rows."""
    if tensor.shape == (count, width):
        return True
    return tensor.numel() == count * width and [d for d in tensor.shape if d != 1] == [
        d for d in (count, width) if d != 1
    ]


def shaped(tensor: Tensor, *shape: int) -> Tensor:
    """`tensor` in that shape. Mostly it has it already, and asking is cheaper than reshaping."""
    return tensor if tensor.shape == shape else tensor.reshape(shape)
