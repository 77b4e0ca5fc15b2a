"""Which engines a request goes to: filters take candidates away, scorers rank what is left, the picker decides.

Pure functions over what the fleet knows. A filter or scorer is one function; the lists in `picker.py` hold them.
"""

from gateway.routing.candidate import Candidate, Wish
from gateway.routing.picker import Picker

__all__ = ["Candidate", "Picker", "Wish"]
