"""Every key in one place. Keys of one request share the hash tag `{id}`, so a script may take them in a cluster.

| key | type | holds | lives |
| --- | --- | --- | --- |
| `request:{id}` | hash | the record | `live_ttl` while live, then `record_ttl` |
| `events:{id}` | stream | each transition with its time | as the record |
| `owned:<replica>` | set | ids of the requests that a replica runs | `live_ttl`, renewed by heartbeat |
| `leases` | sorted set | replica -> when its lease ends, by the store's clock | the same |
| `load:<engine>` | sorted set | request id -> when its place ends | as its newest entry |
| `recent` | sorted set | request id -> when it was admitted; bounded | `live_ttl` |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "duet:"

    def request(self, request_id: str) -> str:
        return f"{self.prefix}request:{{{request_id}}}"

    def events(self, request_id: str) -> str:
        return f"{self.prefix}events:{{{request_id}}}"

    def owned(self, owner: str) -> str:
        return f"{self.prefix}owned:{owner}"

    def load(self, engine: str) -> str:
        return f"{self.prefix}load:{engine}"

    @property
    def leases(self) -> str:
        return f"{self.prefix}leases"

    @property
    def recent(self) -> str:
        return f"{self.prefix}recent"
