"""What operators read and say, in Redis: the feed of all that happens, the orders that stand for engines, and which
engines announce themselves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio.client import Pipeline

from gateway.store import feed, scripts
from gateway.store.client import Client
from gateway.store.codec import event_id
from gateway.store.keys import Keys
from gateway.store.port import FeedRow, Order, Orders, Unreadable
from gateway.store.steps import FEED_KEPT

log = logging.getLogger(__name__)

GIVEN = "given"
"""A field beside the orders, which never leaves them: without it they are not over, but lost."""


class Board:
    """Times to live in milliseconds. `told` goes into the pipeline of a write, the rest are round trips."""

    def __init__(self, client: Client, keys: Keys, *, feed_ms: int, orders_ms: int) -> None:
        self._client = client
        self._keys = keys
        self._feed_ms = feed_ms
        self._orders_ms = orders_ms

    def told(self, pipe: Pipeline, rows: Iterable[Mapping[str, str]]) -> None:
        for row in rows:
            fields: dict[Any, Any] = dict(row)
            pipe.xadd(self._keys.feed, fields, maxlen=FEED_KEPT, approximate=True)
        pipe.pexpire(self._keys.feed, self._feed_ms)

    async def tell(self, rows: Iterable[Mapping[str, str]]) -> None:
        await self._client.write("tell", lambda pipe: self.told(pipe, rows))

    async def feed(self, limit: int, after: str | None) -> Sequence[FeedRow]:
        def fill(pipe: Pipeline) -> None:
            if after is None:
                pipe.xrevrange(self._keys.feed, count=limit)
            else:
                pipe.xrange(self._keys.feed, min=f"({event_id(after)}", count=limit)

        (rows,) = await self._client.read("feed", fill)
        return [FeedRow(id_, *feed.parted(id_, fields)) for id_, fields in (rows[::-1] if after is None else rows)]

    async def has(self, row: str) -> bool:
        id_ = event_id(row)
        (rows,) = await self._client.read("feed", lambda pipe: pipe.xrange(self._keys.feed, min=id_, max=id_))
        return bool(rows)

    async def orders(self) -> Orders | None:
        def fill(pipe: Pipeline) -> None:
            pipe.hgetall(self._keys.orders)
            pipe.pexpire(self._keys.orders, self._orders_ms)

        rows, _ = await self._client.read("orders", fill)
        if not rows:
            return None
        rows.pop(GIVEN, None)
        found: dict[str, dict[Order, str]] = {}
        for name, text in rows.items():
            word, _, engine = name.partition(":")
            if word in set(Order):
                found.setdefault(engine, {})[Order(word)] = text
            else:
                log.warning("order %r for engine %s is not known to this version of the gateway", word, engine)
        return found

    async def announced(self) -> Mapping[str, str | Unreadable | None]:
        registry = self._keys.registry
        (ids,) = await self._client.read("registry", lambda pipe: pipe.zrange(registry.index, 0, -1))

        def fill(pipe: Pipeline) -> None:
            for id_ in ids:
                pipe.get(registry.entry(id_))

        return dict(zip(ids, await self._client.each("registry", fill), strict=True)) if ids else {}

    async def restore_orders(self, last: Orders) -> None:
        await self._client.write("orders", lambda pipe: self._restore(pipe, last))

    async def give_order(
        self, engine: str, put: Mapping[Order, str], drop: Iterable[Order], last: Orders | None
    ) -> None:
        over = [_name(order, engine) for order in drop if order not in put]

        def fill(pipe: Pipeline) -> None:
            if last is not None:
                self._restore(pipe, last)
            given: dict[Any, Any] = {_name(order, engine): text for order, text in put.items()}
            pipe.hset(self._keys.orders, mapping={GIVEN: "1", **given})
            if over:
                pipe.hdel(self._keys.orders, *over)
            pipe.pexpire(self._keys.orders, self._orders_ms)

        await self._client.write("order", fill)

    def _restore(self, pipe: Pipeline, last: Orders) -> None:
        pairs = [GIVEN, "1"]
        for engine, standing in last.items():
            for order, text in standing.items():
                pairs += (_name(order, engine), text)
        pipe.evalsha(scripts.RESTORE.sha, 1, self._keys.orders, str(self._orders_ms), *pairs)


def _name(order: Order, engine: str) -> str:
    return f"{order.value}:{engine}"
