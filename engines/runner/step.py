"""One step's rows on their way through a model's hooks, into the embeddings that the forward pass reads.

    row ── cut ──┬─ prompt ───> preprocess                                   ──> embeddings
                 ├─ replayed ──────────── rows as they were fed ───────────────> embeddings
                 └─ new ──────> preprocess, or preprocess_decode_batch ─> MTP ─> embeddings, codes

Rows are taken in the batch's order. Adjacent decode rows wait for each other, if the model has a hook for them; the
next row of another kind sends them off, so MTP's order is the rows' order too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from common.phase import IS_PREFILL, NUM_COMPUTED, PROMPT_LEN, PhaseInfo
from engines.runner.errors import HookFailed, HookResultInvalid, MtpInputsMissing, PhaseError, ReplayLost
from engines.runner.fed import Fed
from engines.runner.hooks import Hooks
from engines.runner.memory import merge
from engines.runner.mtp import Mtp, described
from engines.runner.rows import Row


@dataclass(frozen=True, slots=True)
class Part:
    """A row, or the prompt or the new positions of one; `start` is its place in the step's flat buffers."""

    row: Row
    phase: PhaseInfo
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.phase.span


@dataclass(slots=True)
class Step:
    """What one step needs, and what it has found so far.

    `ids` `[tokens]` and `embeds` `[tokens, hidden]` are the runner's flat buffers; `given` says that `embeds` already
    holds what the prompt brought (images, say, or embeddings). `fed` and `infos` are kept for each request between
    steps. `extra_args` tells a request's own arguments.
    """

    hooks: Hooks
    mtp: Mtp | None
    fed: dict[str, Fed]
    infos: dict[str, dict[str, Any]]
    extra_args: Callable[[str], Mapping[str, Any]]
    ids: Tensor
    embeds: Tensor
    given: bool
    replayed: dict[int, int] = field(default_factory=dict)
    """Positions that were fed again, by row."""
    _waiting: list[tuple[Part, dict[str, Any]]] = field(default_factory=list)
    _decoded: list[Part] = field(default_factory=list)

    def feed(self, rows: Sequence[Row]) -> None:
        """Everything up to MTP, which the runner calls. Raises PhaseError."""
        for row in rows:
            fed = self.fed.get(row.request)
            if fed is None:
                fed = self.fed[row.request] = Fed()
            fed.meet(row.phase)
            if row.phase.mtp_eligible and row.phase.num_computed >= fed.until:
                self._new(Part(row, row.phase, row.start))
            else:
                self._cut(row, fed)
        self._flush()

    def keep(self) -> None:
        """After MTP: keeps the rows that decode has fed. Drafts are not kept: nobody has verified them."""
        places = [
            (part, position)
            for part in self._decoded
            for position in range(part.phase.num_computed, min(part.phase.end, part.phase.num_tokens))
        ]
        if not places:
            return
        starts = [part.start + position - part.phase.num_computed for part, position in places]
        kept = self.embeds.index_select(0, torch.tensor(starts).to(self.embeds.device, non_blocking=True))
        for k, (part, position) in enumerate(places):
            self.fed[part.row.request].keep(position, kept, k)

    def _cut(self, row: Row, fed: Fed) -> None:
        cut = row.phase.cut(fed.until)
        self._flush()
        if cut.prompt is not None:
            info = self._info(row.request)
            info["sampling_extra_args"] = self.extra_args(row.request)
            self._scalar(Part(row, cut.prompt, row.start))
            if fed.until:  # a prompt into which earlier outputs were folded
                self._replay(row, fed, fed.known(range(cut.prompt.num_computed, cut.prompt.end)))
        if cut.replayed:
            if len(fed.known(cut.replayed)) < len(cut.replayed):
                raise self._lost(row, cut.replayed)
            self._replay(row, fed, cut.replayed)
        if cut.new is not None:
            self._new(Part(row, cut.new, row.start + cut.new.num_computed - row.phase.num_computed))

    def _replay(self, row: Row, fed: Fed, positions: Sequence[int]) -> None:
        if not positions:
            return
        offset = row.start - row.phase.num_computed
        for position, kept in zip(positions, fed.rows(positions), strict=True):
            self.embeds[offset + position] = kept
        self.replayed[row.index] = self.replayed.get(row.index, 0) + len(positions)

    def _new(self, part: Part) -> None:
        """Positions that decode has not fed yet."""
        if part.phase.is_replay:
            raise self._lost(part.row, range(part.phase.num_computed, part.phase.end))
        self._decoded.append(part)
        if self.hooks.decode_batch is not None and part.phase.batched_decode_eligible:
            self._waiting.append((part, self._told(part)))
        else:
            self._flush()
            self._scalar(part)

    def _scalar(self, part: Part) -> None:
        """`preprocess` for one part."""
        ids = self.ids[part.start : part.stop]
        info = self._told(part)
        given = self.embeds[part.start : part.stop] if self.given else None
        try:
            result = self.hooks.preprocess(input_ids=ids, input_embeds=given, **info)
        except Exception as e:
            raise self._failed("preprocess", [part], e) from e
        match result:
            case (Tensor() as new_ids, Tensor() as embeds, Mapping() as updates) if self._fit(
                part.phase.span, new_ids, embeds
            ):
                self._write(part.start, part.stop, new_ids, embeds)
            case other:
                raise self._invalid("preprocess", [part], other, "updates")
        if self.mtp is not None and part.phase.mtp_eligible:
            self._take(part, info, new_ids, embeds, updates)
        merge(info, updates, self.hooks.on_device)

    def _take(self, part: Part, info: dict[str, Any], ids: Tensor, embeds: Tensor, updates: Mapping[str, Any]) -> None:
        assert self.mtp is not None
        match updates.get("mtp_inputs"):
            case (Tensor() as last_hidden, Tensor() as text_step) if (
                last_hidden.numel() == text_step.numel() == self.mtp.width
            ):
                pass
            case None:
                raise self._error(
                    MtpInputsMissing,
                    [part],
                    "preprocess returned no mtp_inputs for a decode row; expected (last hidden, text step)",
                )
            case other:
                raise self._error(
                    HookResultInvalid,
                    [part],
                    f"mtp_inputs is {described(other)}; expected two tensors [1, {self.mtp.width}]",
                )
        self.mtp.add(ids.reshape(-1), embeds, last_hidden.reshape(1, -1), text_step.reshape(1, -1))
        self.mtp.taken.add(part.row.request, part.row.index, part.start, part.phase.num_computed, info)

    def _flush(self) -> None:
        """`preprocess_decode_batch` for the rows that wait. They stand side by side in the buffers."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        parts = [part for part, _ in waiting]
        infos = [info for _, info in waiting]
        start, stop, count = parts[0].start, parts[-1].stop, len(parts)
        assert self.hooks.decode_batch is not None
        assert self.mtp is not None
        try:
            result = self.hooks.decode_batch(input_ids=self.ids[start:stop], req_infos=infos)
        except Exception as e:
            raise self._failed("preprocess_decode_batch", parts, e) from e
        match result:
            case (Tensor() as ids, Tensor() as embeds, Tensor() as last_hidden, Tensor() as text_step, updates) if (
                self._fit(count, ids, embeds)
                and last_hidden.numel() == text_step.numel() == count * self.mtp.width
                and len(updates) == count
            ):
                self._write(start, stop, ids, embeds)
            case other:
                raise self._invalid(
                    "preprocess_decode_batch",
                    parts,
                    other,
                    f"last hidden and text step [{count}, {self.mtp.width}], {count} updates",
                )
        self.mtp.add(ids.reshape(-1), embeds, last_hidden.reshape(count, -1), text_step.reshape(count, -1))
        for part, info, update in zip(parts, infos, updates, strict=True):
            self.mtp.taken.add(part.row.request, part.row.index, part.start, part.phase.num_computed, info)
            merge(info, update, self.hooks.on_device)

    def _info(self, request: str) -> dict[str, Any]:
        info = self.infos.get(request)
        if info is None:
            info = self.infos[request] = {"sampling_extra_args": self.extra_args(request)}
        return info

    def _told(self, part: Part) -> dict[str, Any]:
        """What a hook is told of a part: the request's memory, with the phase as it is now, whatever was in there."""
        info, phase = self._info(part.row.request), part.phase
        info["request_id"] = part.row.request
        info[PROMPT_LEN] = phase.prompt_len
        info[NUM_COMPUTED] = phase.num_computed
        info[IS_PREFILL] = phase.is_prefill
        return info

    def _fit(self, count: int, ids: Tensor, embeds: Tensor) -> bool:
        return ids.numel() == count and embeds.shape == (count, self.embeds.shape[1])

    def _write(self, start: int, stop: int, ids: Tensor, embeds: Tensor) -> None:
        self.embeds[start:stop] = embeds
        self.ids[start:stop] = ids.reshape(-1)

    def _invalid(self, hook: str, parts: Sequence[Part], result: Any, more: str) -> PhaseError:
        count = sum(part.phase.span for part in parts)
        expected = f"ids [{count}], embeddings [{count}, {self.embeds.shape[1]}], {more}"
        return self._error(HookResultInvalid, parts, f"{hook} returned {described(result)}; expected {expected}")

    def _failed(self, hook: str, parts: Sequence[Part], e: Exception) -> PhaseError:
        return self._error(HookFailed, parts, f"{hook} raised {type(e).__name__}: {e}")

    def _lost(self, row: Row, positions: range) -> PhaseError:
        part = Part(row, row.phase, row.start)
        said = (
            f"positions {positions.start} to {positions.stop - 1} are computed again, and were not fed by this engine"
        )
        return self._error(ReplayLost, [part], f"{said}: {row.phase}")

    def _error(self, kind: type[PhaseError], parts: Sequence[Part], message: str) -> PhaseError:
        return kind(
            message,
            model=self.hooks.model,
            requests=[part.row.request for part in parts],
            rows=[part.row.index for part in parts],
        )
