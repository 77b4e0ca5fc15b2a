"""Which engines a request goes to: filters take candidates away, scorers rank what is left, the picker decides.

Pure functions over what the fleet knows. A filter or scorer is one function; the lists in `picker.py` hold them.
`breaker.py` says when an engine that failed is left alone.
"""

from gateway.routing.breaker import Breaker, BreakerState
from gateway.routing.candidate import Candidate, Wish
from gateway.routing.picker import Picker

__all__ = ["Breaker", "BreakerState", "Candidate", "Picker", "Wish"]
