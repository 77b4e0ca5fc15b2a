"""The store in Redis 7.0 or later, or Valkey 7.2 or later.

`admit` and `apply` are one round trip each: one pipeline of script calls for the record (one slot) and plain commands
for what lies in other slots. Every script call carries an operation id, so the client library may repeat a pipeline
whose answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoScriptError, RedisError

from common.errors import ConfigurationError, StoreUnavailable
from gateway.lifecycle import LIVE, Record, State
from gateway.store import scripts
from gateway.store.codec import admission_fields, from_hash, to_hash
from gateway.store.keys import Keys
from gateway.store.port import Applied, EventRow, Load, Outcome, Transition

MAX_CONNECTIONS = 32
TIMEOUT = 2.0
"""Seconds for a connection from the pool, to connect, and for each answer."""
RETRIES = 2
RECENT = 10_000
"""Requests that the recent index keeps."""
OWNERS_AT_ONCE = 16
CLAIMS_AT_ONCE = 200

T = TypeVar("T")


class RedisStore:
    """Any RedisError, and any failure to connect, becomes StoreUnavailable; the URL's password is never in it."""

    def __init__(self, client: Redis, *, prefix: str = "duet:", live_ttl: float = 86400, record_ttl: float = 3600):
        """Times to live in seconds. `client` must decode responses."""
        self._redis = client
        self._keys = Keys(prefix)
        self._live_ms = _ms(live_ttl)
        self._record_ms = _ms(record_ttl)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "duet:",
        live_ttl: float = 86400,
        record_ttl: float = 3600,
        connection_class: type[Connection] | None = None,
    ) -> RedisStore:
        """Raises ConfigurationError unless the URL is redis://, rediss:// or unix://."""
        options: dict[str, Any] = {} if connection_class is None else {"connection_class": connection_class}
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=MAX_CONNECTIONS,
                timeout=TIMEOUT,
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                decode_responses=True,
                retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), RETRIES),
                **options,
            )
        except ValueError as e:
            raise ConfigurationError(f"the Redis URL cannot be used: {e}") from None
        client = Redis(connection_pool=pool)
        client.auto_close_connection_pool = True
        return cls(client, prefix=prefix, live_ttl=live_ttl, record_ttl=record_ttl)

    async def admit(
        self, record: Record, *, transitions: Sequence[Transition] = (), loads: Sequence[Load] = ()
    ) -> Sequence[Applied]:
        op_id = f"admit:{record.owner}"

        def fill(pipe: Pipeline) -> None:
            self._call(
                pipe, scripts.ADMIT, record.id, op_id, record.state.value, repr(record.created_at), self._live_ms,
                *_pairs(admission_fields(record)),
            )  # fmt: skip
            for transition in transitions:
                self._transition(pipe, transition)
            for load in loads:
                key = self._keys.load(load.engine)
                pipe.zadd(key, {load.request_id: load.expires_at})
                pipe.pexpire(key, max(1, _ms(load.expires_at - record.created_at)))
            pipe.sadd(self._keys.owned(record.owner), record.id)
            pipe.pexpire(self._keys.owned(record.owner), self._live_ms)
            pipe.zadd(self._keys.recent, {record.id: record.created_at})
            pipe.zremrangebyrank(self._keys.recent, 0, -RECENT - 1)
            pipe.pexpire(self._keys.recent, self._live_ms)

        results = await self._pipeline("admit", fill)
        return [_applied(row) for row in results[: 1 + len(transitions)]]

    async def apply(
        self, transitions: Sequence[Transition], *, free: Sequence[Load] = (), disown: str | None = None
    ) -> Sequence[Applied]:
        def fill(pipe: Pipeline) -> None:
            for transition in transitions:
                self._transition(pipe, transition)
            for load in free:
                pipe.zrem(self._keys.load(load.engine), load.request_id)
            ended = {t.request_id for t in transitions if t.to not in LIVE}
            if disown is not None and ended:
                pipe.srem(self._keys.owned(disown), *ended)

        results = await self._pipeline("apply", fill)
        return [_applied(row) for row in results[: len(transitions)]]

    async def get(self, request_id: str) -> Record | None:
        (fields,) = await self._pipeline("get", lambda pipe: pipe.hgetall(self._keys.request(request_id)))
        return from_hash(request_id, fields) if fields else None

    async def events(self, request_id: str, *, after: str | None = None) -> Sequence[EventRow]:
        low = "-" if after is None else f"({after}"
        (rows,) = await self._pipeline("events", lambda pipe: pipe.xrange(self._keys.events(request_id), min=low))
        return [EventRow(id_, float(f["at"]), f["event"], State(f["state"])) for id_, f in rows]

    async def recent(self, limit: int) -> Sequence[Record]:
        (ids,) = await self._pipeline("recent", lambda pipe: pipe.zrange(self._keys.recent, 0, limit - 1, desc=True))
        return await self._records(ids)

    async def loads(self, engines: Sequence[str]) -> Mapping[str, int]:
        now = time.time()

        def fill(pipe: Pipeline) -> None:
            for engine in engines:
                pipe.zremrangebyscore(self._keys.load(engine), "-inf", now)
                pipe.zcard(self._keys.load(engine))

        counts = await self._pipeline("loads", fill)
        return dict(zip(engines, counts[1::2], strict=True))

    async def heartbeat(self, owner: str, lease: float) -> None:
        def fill(pipe: Pipeline) -> None:
            pipe.evalsha(scripts.HEARTBEAT.sha, 1, self._keys.leases, owner, _ms(lease), self._live_ms)
            pipe.pexpire(self._keys.owned(owner), self._live_ms)

        await self._pipeline("heartbeat", fill)

    async def retire(self, owner: str) -> None:
        await self.heartbeat(owner, 0)
        (left,) = await self._pipeline("retire", lambda pipe: pipe.scard(self._keys.owned(owner)))
        if not left:
            await self._forget(owner)

    async def orphans(self) -> Sequence[Record]:
        (owners,) = await self._pipeline(
            "orphans", lambda pipe: pipe.evalsha(scripts.OVERDUE.sha, 1, self._keys.leases, OWNERS_AT_ONCE)
        )
        found: list[Record] = []
        for owner in owners:
            found += await self._orphans_of(owner)
        return found

    async def _orphans_of(self, owner: str) -> list[Record]:
        owned = self._keys.owned(owner)
        (ids,) = await self._pipeline("orphans", lambda pipe: pipe.srandmember(owned, CLAIMS_AT_ONCE))
        if not ids:
            await self._forget(owner)
            return []
        live = [r for r in await self._records(ids) if r.live and r.owner == owner]
        over = set(ids) - {r.id for r in live}
        if over:
            await self._pipeline("orphans", lambda pipe: pipe.srem(owned, *over))
        return live

    async def ping(self) -> float:
        start = time.perf_counter()
        await self._pipeline("ping", lambda pipe: pipe.ping())
        return time.perf_counter() - start

    async def aclose(self) -> None:
        with suppress(RedisError, OSError):
            await self._redis.aclose()

    async def _records(self, ids: Sequence[str]) -> list[Record]:
        if not ids:
            return []

        def fill(pipe: Pipeline) -> None:
            for id_ in ids:
                pipe.hgetall(self._keys.request(id_))

        rows = await self._pipeline("records", fill)
        return [from_hash(id_, fields) for id_, fields in zip(ids, rows, strict=True) if fields]

    async def _forget(self, owner: str) -> None:
        await self._pipeline("forget", lambda pipe: pipe.evalsha(scripts.FORGET.sha, 1, self._keys.leases, owner))

    def _transition(self, pipe: Pipeline, t: Transition) -> None:
        ttl = self._live_ms if t.to in LIVE else self._record_ms
        self._call(
            pipe, scripts.TRANSITION, t.request_id, t.op_id, t.expected, t.event.value, t.to.value, repr(t.at), ttl,
            *_pairs(to_hash(t.fields)),
        )  # fmt: skip

    def _call(self, pipe: Pipeline, script: scripts.Script, request_id: str, *args: Any) -> None:
        keys = (self._keys.request(request_id), self._keys.events(request_id))
        pipe.evalsha(script.sha, len(keys), *keys, *args)

    async def _pipeline(self, op: str, fill: Callable[[Pipeline], Any]) -> list[Any]:
        """One round trip. If the server has lost the scripts it gets them, and the same pipeline again."""
        try:
            results = await self._execute(fill)
            if any(isinstance(r, NoScriptError) for r in results):
                for script in scripts.ALL:
                    await self._redis.script_load(script.text)
                results = await self._execute(fill)
        except (RedisError, OSError, TimeoutError) as e:
            raise StoreUnavailable(f"the store did not answer ({op}): {_words(e)}") from None
        for result in results:
            if isinstance(result, Exception):
                raise StoreUnavailable(f"the store refused ({op}): {_words(result)}")
        return results

    async def _execute(self, fill: Callable[[Pipeline], Any]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            fill(pipe)
            results: list[Any] = await pipe.execute(raise_on_error=False)
            return results


def _applied(row: Sequence[Any]) -> Applied:
    outcome, version, state = row
    return Applied(Outcome(outcome), int(version), State(state) if state else None)


def _pairs(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
