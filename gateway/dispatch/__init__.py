"""Runs a request. The only room that knows the order of things.

Coordinator.run(request, sink)
  ├── Admission   which engines, and the record in the store        (waits for the store)
  ├── Journal     each transition, written behind the network call  (does not wait)
  ├── prefill     one call, max_tokens 1; its reply becomes a handoff
  └── relay       one call to decode, streamed to the sink or answered whole
"""

from gateway.dispatch.coordinator import Coordinator
from gateway.dispatch.sink import Sink

__all__ = ["Coordinator", "Sink"]
