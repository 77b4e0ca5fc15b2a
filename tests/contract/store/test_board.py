"""What operators read and say: the feed of all that happens, pages of requests, orders for engines."""

from __future__ import annotations

import pytest

from common.errors import BadRequest
from gateway.lifecycle import Event
from gateway.store.port import Order, Orders, Store
from tests.contract.store.samples import DECODE, PREFILL, START, Author, new_record, other


@pytest.fixture
async def store(store: Store) -> Store:
    await store.loads([PREFILL])  # loads the scripts: a write that finds them gone is repeated, and told twice
    return store


async def test_the_feed_tells_every_requests_transitions_in_order(store: Store) -> None:
    one, two = new_record(), new_record(owner="replica-b")
    author = Author(one)
    await store.admit(one, transitions=[author.next(Event.PREFILL_SENT)])
    await store.admit(two)
    done = author.next(Event.PREFILL_DONE)
    await store.apply([done])
    rows = await store.feed(10)
    told = [(r.fields["request"], r.fields["event"], r.fields["state"], r.fields["version"]) for r in rows]
    assert told == [
        (one.id, "admitted", "accepted", "1"),
        (one.id, "prefill_sent", "prefilling", "2"),
        (two.id, "admitted", "accepted", "1"),
        (one.id, "prefill_done", "prefilled", "3"),
    ]
    assert (rows[0].at, rows[-1].at) == (START, done.at)
    assert rows[2].fields["replica"] == "replica-b"


async def test_the_feed_can_be_read_on_from_any_row(store: Store) -> None:
    for _ in range(5):
        await store.admit(new_record())
    rows = await store.feed(10)
    for i, row in enumerate(rows):
        assert await store.feed(10, after=row.id) == rows[i + 1 :]
        assert await store.feed_has(row.id)
    assert await store.feed(2) == rows[-2:], "without a beginning: the newest"
    assert await store.feed(2, after=rows[0].id) == rows[1:3], "after a row: what followed it first"
    assert await store.feed(10, after="0-0") == rows
    assert not await store.feed_has("0-99999")


@pytest.mark.parametrize("row", ["", "7", "1-x", "(1-1"])
async def test_a_row_id_that_is_none_is_refused(store: Store, row: str) -> None:
    with pytest.raises(BadRequest, match="expected <number>-<number>"):
        await store.feed(10, after=row)
    with pytest.raises(BadRequest, match="expected <number>-<number>"):
        await store.feed_has(row)


async def test_what_is_no_transition_is_told_too(store: Store) -> None:
    await store.tell(START, {"event": "engine_down", "engine": PREFILL})
    (row,) = await store.feed(10)
    assert (row.at, row.fields) == (START, {"event": "engine_down", "engine": PREFILL})


async def test_a_step_that_was_overtaken_is_corrected(store: Store) -> None:
    """A row leaves with the write that it tells of; the one behind it says what became of that."""
    record = new_record()
    author = Author(record)
    await store.admit(record, transitions=[author.next(Event.PREFILL_SENT)])
    late = author.next(Event.PREFILL_DONE)
    winner = Author(record)
    winner.state, winner.version = (await store.get(record.id) or record).state, 2
    await store.apply([winner.next(Event.EXPIRED)])
    await store.apply([other(late)])
    rows = [r.fields for r in await store.feed(10)]
    assert [r["event"] for r in rows[-3:]] == ["expired", "prefill_done", "overtaken"]
    assert (rows[-1]["state"], rows[-1]["version"]) == ("expired", "3")


async def test_pages_of_requests_follow_each_other(store: Store) -> None:
    """Also where several were admitted in the very same moment, and while new ones come."""
    records = [new_record(created_at=START + i // 3) for i in range(9)]
    for record in records:
        await store.admit(record)
    whole = await store.recent(20)
    assert {r.id for r in whole} == {r.id for r in records}
    seen: list[str] = []
    before = None
    while page := await store.recent(2, before=before):
        seen += [r.id for r in page]
        before = (page[-1].created_at, page[-1].id)
        await store.admit(new_record(created_at=START + 100))
    assert seen == [r.id for r in whole]


async def test_orders_stand_until_they_are_dropped(store: Store) -> None:
    assert await store.orders() is None
    await store.give_order(PREFILL, {Order.DRAIN: "1"})
    await store.give_order(DECODE, {Order.ADD: '{"url": "http://x"}'})
    assert await store.orders() == {PREFILL: {Order.DRAIN: "1"}, DECODE: {Order.ADD: '{"url": "http://x"}'}}
    await store.give_order(DECODE, {Order.REMOVE: "1"}, drop=[Order.ADD, Order.DRAIN])
    await store.give_order(PREFILL, {}, drop=[Order.DRAIN])
    assert await store.orders() == {DECODE: {Order.REMOVE: "1"}}


async def test_orders_that_are_all_over_are_not_lost(store: Store) -> None:
    await store.give_order(PREFILL, {Order.DRAIN: "1"})
    await store.give_order(PREFILL, {}, drop=[Order.DRAIN])
    assert await store.orders() == {}
    await store.restore_orders({PREFILL: {Order.DRAIN: "1"}})
    await store.give_order(DECODE, {}, last={PREFILL: {Order.DRAIN: "1"}})
    assert await store.orders() == {}, "what was taken back stays so"


@pytest.mark.parametrize(
    "last", [{}, {PREFILL: {Order.DRAIN: "1", Order.DECLARE: "{}"}, "[fd00::2]:1": {Order.REMOVE: "1"}}]
)
async def test_lost_orders_are_restored_once(store: Store, last: Orders) -> None:
    await store.restore_orders(last)
    assert await store.orders() == last
    await store.restore_orders({DECODE: {Order.DRAIN: "1"}})
    assert await store.orders() == last, "by the first, as a whole"


async def test_an_order_comes_after_those_that_were_lost(store: Store) -> None:
    last = {PREFILL: {Order.DRAIN: "1"}, DECODE: {Order.DRAIN: "1"}}
    await store.give_order(DECODE, {Order.REMOVE: "1"}, drop=[Order.DRAIN], last=last)
    assert await store.orders() == {PREFILL: {Order.DRAIN: "1"}, DECODE: {Order.REMOVE: "1"}}


async def test_an_order_that_is_put_and_dropped_at_once_stands(store: Store) -> None:
    await store.give_order(PREFILL, {Order.ADD: "2"}, drop=[Order.ADD, Order.REMOVE])
    assert await store.orders() == {PREFILL: {Order.ADD: "2"}}


async def test_orders_of_different_engines_do_not_meet(store: Store) -> None:
    """IPv6 addresses and paths have the same characters as the keys."""
    for engine in ("[fd00::2]:8200", "h:1/a:b", "h:1/a"):
        await store.give_order(engine, {Order.DRAIN: engine})
    assert await store.orders() == {e: {Order.DRAIN: e} for e in ("[fd00::2]:8200", "h:1/a:b", "h:1/a")}
