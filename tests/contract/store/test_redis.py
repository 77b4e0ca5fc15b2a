"""What only Redis has: keys with times to live, scripts that get lost, bounds, round trips."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.lifecycle import Event, State
from gateway.store import scripts
from gateway.store.keys import Keys
from gateway.store.port import Load, Order, Outcome
from gateway.store.redis import RedisStore
from tests.contract.store.conftest import LIVE_TTL, RECORD_TTL
from tests.contract.store.samples import DECODE, PREFILL, START, Author, expiry, new_record, places
from tests.redis_server import counting_client, keys_under, scratch_prefix


@pytest.fixture
async def prefix(redis_url: str) -> AsyncIterator[str]:
    async with scratch_prefix(redis_url) as made:
        yield made


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(redis_url, prefix=prefix, live_ttl=LIVE_TTL, record_ttl=RECORD_TTL)
    yield store
    await store.aclose()


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Any]:
    """A client beside the store's, to look at what the store wrote."""
    async with Redis.from_url(redis_url, decode_responses=True) as made:
        yield made


async def test_every_key_has_a_time_to_live(store: RedisStore, client: Any, prefix: str, redis_url: str) -> None:
    until = START + 1e9
    live, ended, orphan = new_record(), new_record(), new_record(owner="replica-b")
    await store.admit(orphan, loads=places(orphan, until=until))
    for record in (live, ended):
        await store.heartbeat(record.owner, 60)
        await store.admit(record, transitions=Author(record).all(Event.PREFILL_SENT), loads=places(record, until=until))
    await store.apply([expiry((await store.get(ended.id)) or ended)], disown="replica-a")
    await store.retire("replica-b")
    await store.orphans()
    await store.loads([PREFILL, DECODE])
    await store.give_order(PREFILL, {Order.DRAIN: "1"})
    names = Keys(prefix)
    keys = set(await keys_under(client, prefix))
    expected = {names.request(r.id) for r in (live, ended, orphan)} | {
        names.events(r.id) for r in (live, ended, orphan)
    }
    expected |= {
        names.leases,
        names.recent,
        names.feed,
        names.orders,
        names.owned("replica-a"),
        names.owned("replica-b"),
    }
    expected |= {names.load(PREFILL), names.load(DECODE)}
    assert keys == expected
    left = {key: await client.pttl(key) for key in keys}
    assert all(ms > 0 for ms in left.values()), left
    for key in (names.request(live.id), names.events(live.id)):
        assert RECORD_TTL * 1000 < left[key] <= LIVE_TTL * 1000
    for key in (names.request(ended.id), names.events(ended.id)):
        assert left[key] <= RECORD_TTL * 1000


async def test_claims_and_leases_each_carry_a_time_to_live(store: RedisStore, client: Any, prefix: str) -> None:
    """Whichever write comes first, and also if no other follows it."""
    names = Keys(prefix)
    await store.heartbeat("replica-a", 60)
    assert 0 < await client.pttl(names.leases) <= LIVE_TTL * 1000
    await client.delete(names.leases)
    await store.admit(new_record())
    for key in (names.leases, names.owned("replica-a")):
        assert 0 < await client.pttl(key) <= LIVE_TTL * 1000
        await client.pexpire(key, 1000)
    await store.heartbeat("replica-a", 60)
    for key in (names.leases, names.owned("replica-a")):
        assert await client.pttl(key) > 1000, "a heartbeat renews both"


async def test_nothing_but_records_is_left_of_owners_that_are_gone(store: RedisStore, client: Any, prefix: str) -> None:
    record = new_record()
    await store.heartbeat("replica-a", 0)
    await store.admit(record, loads=places(record, until=START + 1e9))
    (orphan,) = await store.orphans()
    await store.apply([expiry(orphan)], free=places(record, until=0), disown="replica-a")
    await store.orphans()
    names = Keys(prefix)
    assert set(await keys_under(client, prefix)) == {
        names.request(record.id),
        names.events(record.id),
        names.recent,
        names.feed,
    }


async def test_a_shorter_place_does_not_cut_the_longer_ones(store: RedisStore, client: Any, prefix: str) -> None:
    until = START + 1e9
    for ends in (until, until - 5e8):
        await store.admit(new_record(), loads=[Load(DECODE, new_record().id, ends)])
    assert await client.pexpiretime(Keys(prefix).load(DECODE)) == until * 1000


async def test_operation_ids_stay_bounded_and_repeats_are_still_known(
    store: RedisStore, client: Any, prefix: str
) -> None:
    """The table lets one pair of steps repeat for ever; no gateway does, and the hash would not grow if one did."""
    record = new_record()
    author = Author(record)
    await store.admit(record, transitions=author.all(Event.PREFILL_SENT, Event.DECODE_SENT))
    repeats = author.all(*[Event.PREFILL_DONE] * 200)
    for at in range(0, 200, 50):
        await store.apply(repeats[at : at + 50])
    fields = await client.hkeys(Keys(prefix).request(record.id))
    assert sum(field.startswith("op:") for field in fields) == 64
    assert (await store.apply([repeats[-60]]))[0].outcome is Outcome.DUP
    assert await client.xlen(Keys(prefix).events(record.id)) < 500


async def test_the_recent_index_is_bounded(
    store: RedisStore, client: Any, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.redis.RECENT", 3)
    records = [new_record(created_at=START + i) for i in range(6)]
    for record in records:
        await store.admit(record)
    assert [r.id for r in await store.recent(10)] == [r.id for r in records[:2:-1]]
    assert await client.zcard(Keys(prefix).recent) == 3


async def test_recent_looks_past_records_that_are_gone(store: RedisStore, client: Any, prefix: str) -> None:
    records = [new_record(created_at=START + i) for i in range(9)]
    for record in records:
        await store.admit(record)
    await client.delete(*(Keys(prefix).request(r.id) for r in records[3:]))
    assert [r.id for r in await store.recent(2)] == [records[2].id, records[1].id]
    assert await client.zcard(Keys(prefix).recent) == 3, "and drops them from the index"


async def test_scripts_that_the_server_lost_are_loaded_again(store: RedisStore, client: Any) -> None:
    record = new_record()
    author = Author(record)
    steps = [
        lambda: store.admit(record, transitions=[author.next(Event.PREFILL_SENT)]),
        lambda: store.apply([author.next(Event.PREFILL_DONE)]),
        lambda: store.heartbeat("replica-a", 60),
        lambda: store.loads([PREFILL]),
        lambda: store.orphans(),
        lambda: store.retire("replica-a"),
    ]
    for step in steps:
        await client.script_flush()
        await step()
    kept = await store.get(record.id)
    assert kept is not None
    assert (kept.state, kept.version) == (State.PREFILLED, 3)


async def test_scripts_lost_in_part_step_nothing_twice(store: RedisStore, client: Any) -> None:
    """As after an upgrade that changed one script: the whole pipeline goes again, and says DUP where it had worked."""
    record = new_record()
    await client.script_flush()
    await store.loads([PREFILL])  # loads them all
    await client.script_flush()
    for script in scripts.ALL:
        if script is not scripts.ENTER:
            await client.script_load(script.text)
    sent = Author(record).next(Event.PREFILL_SENT)
    answers = await store.admit(record, transitions=[sent], loads=places(record, until=START + 1e9))
    assert [a.outcome for a in answers] == [Outcome.DUP, Outcome.DUP]
    assert [row.event for row in await store.events(record.id)] == ["admitted", "prefill_sent"]
    assert await store.loads([PREFILL]) == {PREFILL: 1}


async def test_round_trips(redis_url: str, prefix: str) -> None:
    client, trips = counting_client(redis_url)
    store = RedisStore(client, prefix=prefix)
    await store.loads([PREFILL])  # connects, and loads the scripts
    record = new_record()
    author = Author(record)
    until = START + 1e9
    counted: list[tuple[Callable[[], Awaitable[object]], int]] = [
        (
            lambda: store.admit(
                record, transitions=[author.next(Event.PREFILL_SENT)], loads=places(record, until=until)
            ),
            1,
        ),
        (lambda: store.apply(author.all(Event.PREFILL_DONE, Event.DECODE_SENT), free=places(record, until=0)[:1]), 1),
        (lambda: store.apply([author.next(Event.COMPLETED)], free=places(record, until=0), disown="replica-a"), 1),
        (lambda: store.get(record.id), 1),
        (lambda: store.events(record.id), 1),
        (lambda: store.loads([PREFILL, DECODE]), 1),
        (lambda: store.heartbeat("replica-a", 60), 1),
        (lambda: store.orphans(), 1),
        (lambda: store.recent(5), 2),
        (lambda: store.feed(5), 1),
        (lambda: store.tell(START, {"event": "engine_up"}), 1),
        (lambda: store.orders(), 1),
        (lambda: store.give_order(PREFILL, {Order.DRAIN: "1"}, drop=[Order.ADD]), 1),
        (lambda: store.retire("replica-a"), 1),
    ]
    for call, expected in counted:
        trips.reset()
        await call()
        assert trips.count == expected
    await store.aclose()


async def test_a_record_of_another_version_hides_no_other(
    store: RedisStore, client: Any, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    strange, plain = new_record(created_at=START + 1), new_record()
    await store.heartbeat("replica-a", 0)
    for record in (strange, plain):
        await store.admit(record)
    await client.hset(Keys(prefix).request(strange.id), "state", "from_the_future")
    assert [r.id for r in await store.recent(10)] == [plain.id]
    assert [r.id for r in await store.orphans()] == [plain.id]
    assert "from_the_future" in caplog.text
    await client.hset(Keys(prefix).request(strange.id), "state", "accepted")
    assert {r.id for r in await store.orphans()} == {strange.id, plain.id}, "its claim was kept"
