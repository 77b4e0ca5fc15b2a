"""Every key in one place. Keys that one script takes share a hash tag, so that it may take them in a cluster.

| key | type | holds | lives |
| --- | --- | --- | --- |
| `request:{id}` | hash | the record | `live_ttl` after each transition, `record_ttl` after the last |
| `events:{id}` | stream | each transition with its time | as the record |
| `leases:{owners}` | sorted set | replica -> when its lease ends, store's ms | `live_ttl`, renewed by heartbeat |
| `owned:{owners}:<replica>` | set | ids of the requests that a replica runs | the same |
| `load:<engine>` | sorted set | request id -> when its place ends, epoch ms | as its longest entry |
| `cancels:<replica>` | channel | ids of requests that somebody wants ended | not kept |
| `feed` | stream | what happened to any request or engine; bounded | `live_ttl + record_ttl` after its newest entry |
| `orders` | hash | `<order>:<engine>` -> its text; `given` from the first on | `live_ttl` after a replica looked |
| `registered` | sorted set | engine -> when it was last heard of, epoch s (`common/registry`) | a day more |
| `registered:<engine>` | string | its announcement | some seconds, renewed by heartbeat |
| `audio:<id>` | string | what a spoken answer said | `audio_ttl` |
| `recent` | sorted set | request id -> when it was admitted; bounded | `live_ttl + record_ttl` after an admission |
"""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import ConfigurationError
from common.registry import Registry


@dataclass(frozen=True, slots=True)
class Keys:
    """Raises ConfigurationError for a prefix with a brace: it would take the place of the hash tags."""

    prefix: str = "duet:"

    def __post_init__(self) -> None:
        if "{" in self.prefix or "}" in self.prefix:
            raise ConfigurationError(f"Redis key prefix {self.prefix!r}: expected no brace in it")

    def request(self, request_id: str) -> str:
        return f"{self.prefix}request:{{{request_id}}}"

    def events(self, request_id: str) -> str:
        return f"{self.prefix}events:{{{request_id}}}"

    def owned(self, owner: str) -> str:
        return f"{self.prefix}owned:{{owners}}:{owner}"

    def load(self, engine: str) -> str:
        return f"{self.prefix}load:{engine}"

    def cancels(self, owner: str) -> str:
        return f"{self.prefix}cancels:{owner}"

    def audio(self, audio_id: str) -> str:
        return f"{self.prefix}audio:{audio_id}"

    @property
    def registry(self) -> Registry:
        return Registry(self.prefix)

    @property
    def leases(self) -> str:
        return f"{self.prefix}leases:{{owners}}"

    @property
    def feed(self) -> str:
        return f"{self.prefix}feed"

    @property
    def orders(self) -> str:
        return f"{self.prefix}orders"

    @property
    def recent(self) -> str:
        return f"{self.prefix}recent"
