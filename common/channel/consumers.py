"""Who pulls what from a producer, bounded: what a peer asks beyond that is dropped, and it asks again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.channel.reference import Key
from common.channel.wire import MOST_CREDIT

MOST = 16_384
"""Consumers at one time: three for each request that is spoken, and room to spare."""
MOST_OF_ONE = 16
"""Streams that one connection may pull at one time. A `Puller` has a connection for each."""


@dataclass(slots=True, eq=False)
class Consumer:
    """One consumer of one stream: how far it was sent, how many frames it still takes, and since when it is here."""

    identity: bytes
    key: Key
    sent: int
    credit: int
    since: float
    heard: float


class Consumers:
    """Used by one thread; only `keys` may be called from any."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._count = 0
        self._of_peer: dict[bytes, dict[Key, Consumer]] = {}
        self._of_stream: dict[Key, dict[bytes, Consumer]] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Consumer]:
        """May be changed meanwhile."""
        return iter([consumer for mine in self._of_peer.values() for consumer in mine.values()])

    def keys(self) -> set[Key]:
        """Streams with a consumer. `list` of a dict is one step, so the thread may change it meanwhile."""
        keys = list(self._of_stream)
        return set(keys)

    def of(self, key: Key) -> list[Consumer]:
        return list(self._of_stream.get(key, {}).values())

    def pull(self, identity: bytes, key: Key, start: int, credit: int, now: float) -> bool:
        """Begins anew at `start`. Returns whether there was room."""
        mine = self._of_peer.get(identity, {})
        known = mine.get(key)
        if known is None and (self._count >= self._most or len(mine) >= self._most_of_one):
            return False
        since = known.since if known else now
        consumer = Consumer(identity, key, start, min(credit, MOST_CREDIT), since, now)
        self._of_peer.setdefault(identity, mine)[key] = consumer
        self._of_stream.setdefault(key, {})[identity] = consumer
        self._count += known is None
        return True

    def more(self, identity: bytes, key: Key, credit: int, now: float) -> bool:
        """Returns whether it is known."""
        known = self._of_peer.get(identity, {}).get(key)
        if known is None:
            return False
        known.credit = min(known.credit + credit, MOST_CREDIT)
        known.heard = now
        return True

    def forget(self, identity: bytes, key: Key) -> None:
        mine = self._of_peer.get(identity, {})
        if mine.pop(key, None) is None:
            return
        self._count -= 1
        its = self._of_stream[key]
        del its[identity]
        if not mine:
            del self._of_peer[identity]
        if not its:
            del self._of_stream[key]
