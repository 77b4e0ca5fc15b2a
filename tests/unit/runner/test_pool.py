"""What decode has fed is kept as rows, and no more than rows."""

from __future__ import annotations

import torch

from engines.runner.pool import CHUNK, RowPool
from tests.unit.runner.stage import TOKENS as ROOM
from tests.unit.runner.stage import Stage
from tests.unit.runner.talker import HIDDEN
from tests.unit.runner.test_contract import Make, arrive

ROWS = torch.arange(3 * CHUNK, dtype=torch.float64)[:, None].expand(-1, HIDDEN).contiguous()
IDS = torch.arange(3 * CHUNK, dtype=torch.int32) + 7


def held(pool: RowPool) -> int:
    """Bytes of all that the pool's tensors hold on to, each storage once."""
    tensors = [tensor for chunk in pool._chunks for tensor in chunk]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def test_rows_come_back_as_they_were() -> None:
    pool = RowPool()
    starts = [5, 3, 4, 900]
    slots = pool.put(ROWS, IDS, starts)
    more = pool.put(ROWS, IDS, range(2 * CHUNK))  # over a chunk's end
    rows, ids = pool.get(slots)
    assert rows[:, 0].tolist() == starts
    assert ids.tolist() == [start + 7 for start in starts]
    assert (rows.dtype, ids.dtype) == (torch.float64, torch.int32)
    rows, ids = pool.get(reversed(more))
    assert rows[:, -1].tolist() == list(reversed(range(2 * CHUNK)))
    assert ids.tolist() == [start + 7 for start in reversed(range(2 * CHUNK))]


def test_what_is_put_in_is_copied() -> None:
    pool, rows, ids = RowPool(), torch.ones(4, HIDDEN), torch.ones(4, dtype=torch.int32)
    slots = pool.put(rows, ids, [0, 2])
    rows.zero_()
    ids.zero_()
    assert [kept.sum() for kept in pool.get(slots)] == [2 * HIDDEN, 2]


def test_there_is_room_for_as_many_rows_as_there_were_at_once() -> None:
    pool = RowPool()
    for _ in range(5):
        slots = pool.put(ROWS, IDS, range(CHUNK + 1))
        assert pool.held == CHUNK + 1
        pool.free(slots)
    assert (pool.held, pool.room) == (0, 2 * CHUNK)
    assert held(pool) == pool.room * (HIDDEN * ROWS.element_size() + IDS.element_size())


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
    assert held(pool) == CHUNK * (HIDDEN + 1) * 4
    s.finish("stays")
    assert pool.held == 0


def test_no_row_that_is_kept_is_the_steps_buffer() -> None:
    s = Stage()
    arrive(s, "r", 3, decoded=2)
    buffer = s.runner.inputs_embeds.gpu
    assert len(buffer) == ROOM
    before, _ = s.runner.kept.pool.get(s.runner.kept.fed["r"].all_slots())
    buffer.fill_(-1)
    after, _ = s.runner.kept.pool.get(s.runner.kept.fed["r"].all_slots())
    assert after.equal(before)
    assert buffer.untyped_storage().data_ptr() not in {
        rows.untyped_storage().data_ptr() for rows, _ in s.runner.kept.pool._chunks
    }
