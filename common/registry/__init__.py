"""The registry: engines announce themselves in Redis, gateways read who is there (`docs/discovery.md`).

| module | what is in it |
| --- | --- |
| `announcement.py` | what an engine says of itself, and under which keys it stands |
| `announcer.py` | says it again and again while the engine answers, and takes it back at the end |
| `process.py` | the same beside a server, as the environment asks |
"""

from common.registry.announcement import Announcement, Registry
from common.registry.announcer import EVERY, TTL, Announcer, Health, health_of

__all__ = ["EVERY", "TTL", "Announcement", "Announcer", "Health", "Registry", "health_of"]
