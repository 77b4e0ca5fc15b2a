"""Which engines there are, from whoever knows: `Discovery` asks its sources again and again, and merges what they say.

| module | the engines of |
| --- | --- |
| `static.py` | settings |
| `registered.py` | the registry in Redis, where engines announce themselves |
| `file.py` | a file, which is read again when it changes |
| `names.py` | DNS names that stand for several addresses, as Kubernetes has them |

`port.py` is what a source is, `discovery.py` asks them, `told.py` makes an engine of a URL. A source that fails keeps
what it said last: losing sight of engines is no reason to send them nothing.
"""

from gateway.discovery.discovery import Discovery
from gateway.discovery.port import Found, Source, SourceAway
from gateway.discovery.static import Static

__all__ = ["Discovery", "Found", "Source", "SourceAway", "Static"]
