"""Which engines there are, and which of them answer.

`member.py` is one engine as this gateway sees it, `monitor.py` asks it how it is, `fleet.py` is all of them with
the load that the store counts.
"""

from gateway.fleet.fleet import Fleet
from gateway.fleet.member import Member

__all__ = ["Fleet", "Member"]
