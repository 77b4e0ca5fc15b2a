"""What decode has fed is kept as rows, and no more than rows."""

from __future__ import annotations

import torch

from engines.runner.pool import CHUNK, RowPool
from tests.unit.runner.stage import TOKENS as ROOM
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import HIDDEN
from tests.unit.runner.test_contract import Make, arrive

ROWS = torch.arange(3 * CHUNK, dtype=torch.float64)[:, None].expand(-1, HIDDEN).contiguous()


def held(pool: RowPool) -> int:
    """Bytes of all that the pool's tensors hold on to, each storage once."""
    return sum({c.untyped_storage().data_ptr(): c.untyped_storage().nbytes() for c in pool._chunks}.values())


def test_rows_come_back_as_they_were() -> None:
    pool = RowPool()
    starts = [5, 3, 4, 900]
    slots = pool.put(ROWS, starts)
    more = pool.put(ROWS, range(2 * CHUNK))  # over a chunk's end
    assert pool.get(slots)[:, 0].tolist() == starts
    assert pool.get(reversed(more))[:, -1].tolist() == list(reversed(range(2 * CHUNK)))
    assert pool.get(slots).dtype == torch.float64


def test_what_is_put_in_is_copied() -> None:
    pool, rows = RowPool(), torch.ones(4, HIDDEN)
    slots = pool.put(rows, [0, 2])
    rows.zero_()
    assert pool.get(slots).sum() == 2 * HIDDEN


def test_there_is_room_for_as_many_rows_as_there_were_at_once() -> None:
    pool = RowPool()
    for _ in range(5):
        slots = pool.put(ROWS, range(CHUNK + 1))
        assert pool.held == CHUNK + 1
        pool.free(slots)
    assert (pool.held, pool.room) == (0, 2 * CHUNK)
    assert held(pool) == pool.room * HIDDEN * ROWS.element_size()


def test_a_request_that_lives_on_holds_its_own_rows_alone(stage: Make) -> None:
    """Beside it others come and go; a step's rows are not kept for the one that stays."""
    s = stage()
    arrive(s, "stays", 3, decoded=0)
    for k in range(20):
        for name in "abc":
            arrive(s, name, 3, decoded=0)
        s.step(("a", 3, 1), ("b", 3, 1), ("stays", 3 + k, 1), ("c", 3, 1))
        s.requests["stays"].output.append(100)
        for name in "abc":
            s.finish(name)
    pool = s.runner.kept.pool
    assert pool.held == 20
    assert pool.room == CHUNK
    assert held(pool) == CHUNK * HIDDEN * 4
    s.finish("stays")
    assert pool.held == 0


def test_no_row_that_is_kept_is_the_steps_buffer() -> None:
    s = Stage()
    arrive(s, "r", 3, decoded=2)
    buffer = s.runner.inputs_embeds.gpu
    assert len(buffer) == ROOM
    kept = s.runner.kept.pool.get(s.runner.kept.fed["r"].all_slots())
    before = kept.clone()
    buffer.fill_(-1)
    assert s.runner.kept.pool.get(s.runner.kept.fed["r"].all_slots()).equal(before)
    assert {c.untyped_storage().data_ptr() for c in s.runner.kept.pool._chunks}.isdisjoint(
        {buffer.untyped_storage().data_ptr()}
    )
