"""Which engines there are, which of them answer, and what operators want of them.

| module | what is in it |
| --- | --- |
| `member.py` | one engine as this gateway sees it |
| `monitor.py` | asks it how it is; `identity.py` is what speech must know of it |
| `fleet.py` | all of them, with the load that the store counts |
| `operator.py` | the engines that discovery found, and orders over them: drain, add, remove, on every replica |
| `fit.py` | whether an engine fits the others |
| `gauges.py` | what engines tell of themselves when somebody looks |
| `reporter.py` | tells the feed what becomes of engines |
"""

from gateway.fleet.fleet import Fleet
from gateway.fleet.gauges import Gauges, Looker
from gateway.fleet.member import Member
from gateway.fleet.operator import Operator
from gateway.fleet.reporter import Reporter

__all__ = ["Fleet", "Gauges", "Looker", "Member", "Operator", "Reporter"]
