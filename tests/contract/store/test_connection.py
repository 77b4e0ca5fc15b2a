"""Connections that fail: one kind of error, bounded repeats, and no password in any message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from common.errors import ConfigurationError, StoreUnavailable
from common.valkey import EmbeddedValkey
from gateway.lifecycle import Event
from gateway.store.port import Outcome, Store
from gateway.store.redis import RedisStore
from tests.contract.store.samples import PREFILL, Author, new_record
from tests.redis_server import counting_client, scratch_prefix

CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "admit": lambda s: s.admit(new_record()),
    "apply": lambda s: s.apply([Author(new_record()).next(Event.PREFILL_SENT)]),
    "get": lambda s: s.get("a"),
    "events": lambda s: s.events("a"),
    "recent": lambda s: s.recent(1),
    "loads": lambda s: s.loads([PREFILL]),
    "heartbeat": lambda s: s.heartbeat("a", 1),
    "retire": lambda s: s.retire("a"),
    "orphans": lambda s: s.orphans(),
    "keep": lambda s: s.keep_transcript("audio_a", "x", 1),
    "transcripts": lambda s: s.transcripts(["audio_a"]),
    "ping": lambda s: s.ping(),
}


@pytest.mark.parametrize("op", CALLS)
async def test_a_server_that_is_gone_is_one_kind_of_error(op: str, tmp_path: Any) -> None:
    store = RedisStore.from_url(f"unix://:s3cret-word@{tmp_path}/nobody.sock")
    with pytest.raises(StoreUnavailable) as caught:
        await CALLS[op](store)
    assert op in caught.value.message
    assert "s3cret-word" not in caught.value.message
    await store.aclose()


async def test_a_wrong_password_is_named_and_not_shown(redis_url: str) -> None:
    scheme, _, rest = redis_url.partition("://")
    store = RedisStore.from_url(f"{scheme}://nobody:s3cret-word@{rest.rpartition('@')[2]}")
    with pytest.raises(StoreUnavailable, match="username-password") as caught:
        await store.ping()
    assert "s3cret-word" not in caught.value.message
    await store.aclose()


async def test_a_server_that_goes_away_is_noticed() -> None:
    with EmbeddedValkey() as valkey:
        store = RedisStore.from_url(valkey.url)
        await store.admit(new_record())
        valkey.stop()
        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.admit(new_record())
    await store.aclose()


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.client.TIMEOUT", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    path = f"{tmp_path}/silent.sock"
    async with await asyncio.start_unix_server(silent, path):
        store = RedisStore.from_url(f"unix://{path}")
        with pytest.raises(StoreUnavailable, match="ping"):
            await store.ping()
        await store.aclose()


async def test_an_answer_that_was_lost_is_asked_for_again_without_a_second_step(redis_url: str) -> None:
    """The first answer to the admission is thrown away with its connection, after the server has done the work."""
    client, _ = counting_client(redis_url)
    pool = client.connection_pool
    base = pool.connection_class
    to_lose = [0]

    class Lossy(base):  # type: ignore[misc, valid-type]
        async def read_response(self, *args: Any, **options: Any) -> Any:
            answer = await super().read_response(*args, **options)
            if to_lose[0]:
                to_lose[0] -= 1
                await self.disconnect()
                raise ConnectionError("lost on the way")
            return answer

    pool.connection_class = Lossy
    async with scratch_prefix(redis_url) as prefix:
        store = RedisStore(client, prefix=prefix)
        await store.loads([PREFILL])
        record = new_record()
        to_lose[0] = 1
        answers = await store.admit(record, transitions=[Author(record).next(Event.PREFILL_SENT)])
        assert [a.outcome for a in answers] == [Outcome.DUP, Outcome.DUP]
        assert [row.event for row in await store.events(record.id)] == ["admitted", "prefill_sent"]
        await store.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:6379",
        "localhost:6379",
        "redis://localhost:hunter2",
        "redis://user:hunt#er2@localhost",
        "redis://localhost?socket_timeout=hunter2",
        "redis://localhost?no_such_option=hunter2",
    ],
)
def test_a_url_that_is_none_is_refused_without_its_words(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected redis://") as caught:
        RedisStore.from_url(url)
    assert "hunt" not in caught.value.message
    assert "er2" not in caught.value.message


@pytest.mark.parametrize("url", ["redis://localhost", "rediss://u:p@localhost:6380/2", "unix:///run/redis.sock?db=1"])
async def test_the_kinds_of_url(url: str) -> None:
    await RedisStore.from_url(url).aclose()
