"""The store in Redis 7.0 or later, or Valkey 7.2 or later.

`admit` and `apply` are one round trip each: one pipeline of script calls for the record (one slot) and of commands for
what lies in other slots. A pipeline is no transaction, so its order matters: a claim is there before the record that it
is for, and the record before whatever lists it.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline

from gateway.lifecycle import LIVE, Record, State
from gateway.store import feed, scripts
from gateway.store.board import Board
from gateway.store.client import Client, client_from_url
from gateway.store.codec import admission_fields, engines_of, event_id, fingerprint, from_hash, readable
from gateway.store.keys import Keys
from gateway.store.port import Applied, EventRow, FeedRow, Load, Order, Orders, Outcome, Transition, Unreadable
from gateway.store.steps import EVENTS_KEPT, FIRST_LEASE, OPS_KEPT, Step, steps

log = logging.getLogger(__name__)

RECENT = 10_000
"""Requests that the recent index keeps."""
PAGE = 500
"""Records that one round trip fetches at most."""
OWNERS_AT_ONCE = 256
CLAIMS_AT_ONCE = 200
"""Claims of one owner that a look for orphans takes; it ends once it has found as many."""


class RedisStore:
    def __init__(self, client: Redis, *, prefix: str = "duet:", live_ttl: float = 86400, record_ttl: float = 3600):
        """Times to live in seconds. `client` must decode responses. Raises ConfigurationError for the prefix."""
        self._client = Client(client)
        self._keys = Keys(prefix)
        self._live_ms = _ms(live_ttl)
        self._record_ms = _ms(record_ttl)
        self._board = Board(self._client, self._keys, feed_ms=self._live_ms + self._record_ms, orders_ms=self._live_ms)

    @classmethod
    def from_url(
        cls, url: str, *, prefix: str = "duet:", live_ttl: float = 86400, record_ttl: float = 3600
    ) -> RedisStore:
        """Raises ConfigurationError unless the URL is redis://, rediss:// or unix://."""
        return cls(client_from_url(url), prefix=prefix, live_ttl=live_ttl, record_ttl=record_ttl)

    async def admit(
        self, record: Record, *, transitions: Sequence[Transition] = (), loads: Sequence[Load] = ()
    ) -> Sequence[Applied]:
        fields = admission_fields(record)
        op_id = fingerprint(fields)
        chain = steps(transitions, after={record.id: op_id})

        def fill(pipe: Pipeline) -> None:
            self._claim(pipe, record.owner, record.id)
            self._call(
                pipe, scripts.ADMIT, record.id, op_id, record.state.value, repr(record.created_at), self._live_ms,
                EVENTS_KEPT, *_pairs(fields),
            )  # fmt: skip
            for step in chain:
                self._step(pipe, step)
            self._enter(pipe, loads)
            pipe.zadd(self._keys.recent, {record.id: record.created_at}, nx=True)
            pipe.zremrangebyrank(self._keys.recent, 0, -RECENT - 1)
            pipe.pexpire(self._keys.recent, self._live_ms + self._record_ms)
            self._board.told(pipe, [feed.admitted(record), *map(feed.stepped, chain)])

        results = await self._client.write("admit", fill)
        applied = [_applied(row) for row in results[1 : 2 + len(chain)]]
        await self._correct(chain, applied[1:])
        return applied

    async def apply(
        self,
        transitions: Sequence[Transition],
        *,
        free: Sequence[Load] = (),
        enter: Sequence[Load] = (),
        disown: str | None = None,
    ) -> Sequence[Applied]:
        chain = steps(transitions)
        ended = sorted({step.request_id for step in chain if step.ends})
        places: dict[str, list[str]] = defaultdict(list)
        for load in free:
            places[load.engine].append(load.request_id)

        def fill(pipe: Pipeline) -> None:
            for step in chain:
                self._step(pipe, step)
            for engine, ids in places.items():
                pipe.zrem(self._keys.load(engine), *ids)
            self._enter(pipe, enter)
            if disown is not None and ended:
                pipe.srem(self._keys.owned(disown), *ended)
            if chain:
                self._board.told(pipe, map(feed.stepped, chain))

        results = await self._client.write("apply", fill)
        applied = [_applied(row) for row in results[: len(chain)]]
        await self._correct(chain, applied)
        if disown is not None:
            await self._reclaim(disown, chain, applied)
        return applied

    async def get(self, request_id: str) -> Record | None:
        (fields,) = await self._client.read("get", lambda pipe: pipe.hgetall(self._keys.request(request_id)))
        return from_hash(request_id, fields) if fields else None

    async def events(self, request_id: str, *, after: str | None = None) -> Sequence[EventRow]:
        low = "-" if after is None else f"({event_id(after)}"
        (rows,) = await self._client.read("events", lambda pipe: pipe.xrange(self._keys.events(request_id), min=low))
        return [EventRow(id_, float(f["at"]), f["event"], State(f["state"]), engines_of(f)) for id_, f in rows]

    async def recent(self, limit: int, *, before: tuple[float, str] | None = None) -> Sequence[Record]:
        found: dict[str, Record] = {}
        gone: list[str] = []
        size = min(limit, PAGE)
        start = 0
        while len(found) < limit:
            newest = await self._newest(start, size, before[0] if before is not None else "+inf")
            ids = [id_ for id_, at in newest if before is None or (at, id_) < before]
            rows = await self._hashes("recent", ids) if ids else {}
            found |= {record.id: record for record in readable(rows)}
            gone += [id_ for id_, fields in rows.items() if not fields]
            start += size
            if len(newest) < size:
                break
        if gone:
            await self._client.write("recent", lambda pipe: pipe.zrem(self._keys.recent, *gone))
        return list(found.values())[:limit]

    async def loads(self, engines: Sequence[str]) -> Mapping[str, int]:
        def fill(pipe: Pipeline) -> None:
            for engine in engines:
                pipe.evalsha(scripts.COUNT.sha, 1, self._keys.load(engine))

        counted = dict(zip(engines, await self._client.each("loads", fill), strict=True))
        return {engine: count for engine, count in counted.items() if not isinstance(count, Unreadable)}

    async def feed(self, limit: int, *, after: str | None = None) -> Sequence[FeedRow]:
        return await self._board.feed(limit, after)

    async def feed_has(self, row: str) -> bool:
        return await self._board.has(row)

    async def tell(self, at: float, fields: Mapping[str, str]) -> None:
        await self._board.tell([{**fields, "at": repr(at)}])

    async def orders(self) -> Orders | None:
        return await self._board.orders()

    async def restore_orders(self, last: Orders) -> None:
        await self._board.restore_orders(last)

    async def give_order(
        self, engine: str, put: Mapping[Order, str], *, drop: Iterable[Order] = (), last: Orders | None = None
    ) -> None:
        await self._board.give_order(engine, put, drop, last)

    async def announced(self) -> Mapping[str, str | Unreadable | None]:
        return await self._board.announced()

    async def heartbeat(self, owner: str, lease: float) -> None:
        await self._client.write("heartbeat", lambda pipe: self._renew(pipe, owner, lease))

    async def retire(self, owner: str) -> None:
        def fill(pipe: Pipeline) -> None:
            self._renew(pipe, owner, 0)
            self._forget(pipe, owner)

        await self._client.write("retire", fill)

    async def orphans(self) -> Sequence[Record]:
        (owners,) = await self._client.read(
            "orphans", lambda pipe: pipe.evalsha(scripts.OVERDUE.sha, 1, self._keys.leases, OWNERS_AT_ONCE)
        )
        found: list[Record] = []
        for owner in owners:
            found += await self._orphans_of(owner)
            if len(found) >= CLAIMS_AT_ONCE:
                break
        return found

    async def ask_cancel(self, owner: str, request_id: str) -> int:
        (heard,) = await self._client.read("cancel", lambda pipe: pipe.publish(self._keys.cancels(owner), request_id))
        return int(heard)

    def asked_cancels(self, owner: str) -> AsyncIterator[str]:
        return self._client.listen("cancel", self._keys.cancels(owner))

    async def keep_transcript(self, audio_id: str, text: str, ttl: float) -> None:
        await self._client.write("keep", lambda pipe: pipe.set(self._keys.audio(audio_id), text, px=_ms(ttl)))

    async def transcripts(self, audio_ids: Sequence[str]) -> Mapping[str, str | None]:
        def fill(pipe: Pipeline) -> None:
            for audio_id in audio_ids:
                pipe.get(self._keys.audio(audio_id))

        return dict(zip(audio_ids, await self._client.read("transcripts", fill), strict=True))

    async def ping(self) -> float:
        start = time.perf_counter()
        await self._client.read("ping", lambda pipe: pipe.ping())
        return time.perf_counter() - start

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _newest(self, start: int, size: int, since: float | str) -> list[tuple[str, float]]:
        """Ids with their times, newest first, from a time on back."""

        def fill(pipe: Pipeline) -> None:
            pipe.zrevrangebyscore(self._keys.recent, since, "-inf", start=start, num=size, withscores=True)

        (found,) = await self._client.read("recent", fill)
        return [(id_, at) for id_, at in found]

    async def _hashes(self, op: str, ids: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The hashes of these records, in this order; empty where there is none. What is no hash is left out."""

        def fill(pipe: Pipeline) -> None:
            for id_ in ids:
                pipe.hgetall(self._keys.request(id_))

        found = dict(zip(ids, await self._client.each(op, fill), strict=True))
        for id_, fields in found.items():
            if isinstance(fields, Unreadable):
                log.warning("the record of request %s cannot be read: %s", id_, fields.why)
        return {id_: fields for id_, fields in found.items() if not isinstance(fields, Unreadable)}

    async def _orphans_of(self, owner: str) -> list[Record]:
        owned = self._keys.owned(owner)
        (ids,) = await self._client.each("orphans", lambda pipe: pipe.srandmember(owned, CLAIMS_AT_ONCE))
        if isinstance(ids, Unreadable):
            log.warning("the claims of %s cannot be read: %s", owner, ids.why)
            return []
        rows = await self._hashes("orphans", ids) if ids else {}
        over = [id_ for id_, fields in rows.items() if not fields]
        live: list[Record] = []
        for record in readable(rows):
            if record.live and record.owner == owner:
                live.append(record)
            else:
                over.append(record.id)

        def fill(pipe: Pipeline) -> None:
            if over:
                pipe.srem(owned, *over)
            self._forget(pipe, owner)

        if over or not live:
            await self._client.write("orphans", fill)
        return live

    async def _reclaim(self, owner: str, chain: Sequence[Step], applied: Sequence[Applied]) -> None:
        """Gives back the claims of requests that were to end and did not: without one, nobody would ever close them."""
        live = [
            step.request_id
            for step, one in zip(chain, applied, strict=True)
            if step.ends and one.outcome is Outcome.CONFLICT and one.state in LIVE
        ]

        def fill(pipe: Pipeline) -> None:
            for request_id in live:
                self._claim(pipe, owner, request_id)

        if live:
            await self._client.write("apply", fill)

    async def _correct(self, chain: Sequence[Step], applied: Sequence[Applied]) -> None:
        if rows := list(feed.corrections(chain, applied)):
            await self._board.tell(rows)

    def _enter(self, pipe: Pipeline, loads: Sequence[Load]) -> None:
        for load in loads:
            pipe.evalsha(scripts.ENTER.sha, 1, self._keys.load(load.engine), load.request_id, _ms(load.expires_at))

    def _claim(self, pipe: Pipeline, owner: str, request_id: str) -> None:
        keys = (self._keys.leases, self._keys.owned(owner))
        pipe.evalsha(scripts.CLAIM.sha, len(keys), *keys, owner, request_id, _ms(FIRST_LEASE), self._live_ms)

    def _renew(self, pipe: Pipeline, owner: str, lease: float) -> None:
        keys = (self._keys.leases, self._keys.owned(owner))
        pipe.evalsha(scripts.HEARTBEAT.sha, len(keys), *keys, owner, _ms(lease), max(self._live_ms, _ms(lease)))

    def _forget(self, pipe: Pipeline, owner: str) -> None:
        keys = (self._keys.leases, self._keys.owned(owner))
        pipe.evalsha(scripts.FORGET.sha, len(keys), *keys, owner)

    def _step(self, pipe: Pipeline, step: Step) -> None:
        self._call(
            pipe, scripts.TRANSITION, step.request_id, step.op_id, step.expected, step.builds_on, step.event, step.to,
            int(step.ends), step.at, self._record_ms if step.ends else self._live_ms, EVENTS_KEPT, OPS_KEPT,
            *_pairs(step.fields),
        )  # fmt: skip

    def _call(self, pipe: Pipeline, script: scripts.Script, request_id: str, *args: Any) -> None:
        keys = (self._keys.request(request_id), self._keys.events(request_id))
        pipe.evalsha(script.sha, len(keys), *keys, *args)


def _applied(row: Sequence[Any]) -> Applied:
    outcome, version, state = row
    return Applied(Outcome(outcome), int(version), State(state) if state else None)


def _pairs(fields: Mapping[str, str]) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
