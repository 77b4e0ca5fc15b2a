"""Runs a request. The only room that knows the order of things.

    Coordinator.run(request, sink)
      ├── Router     which engines
      ├── Journal    the record, and each transition written behind the network call
      └── Serving    attempts, as policy and budget allow; one way out
           └── Attempt    prefill, handoff, decode
                ├── relay    decode's answer, streamed to the sink or whole
                └── speech/  a Talker and a Code2Wav beside it, for answers that are wanted as sound too

`handoffs.py` takes what an attempt leaves behind at prefill, `cancel.py` hears what other replicas want ended,
`pulse.py` knows when this process stood still.
"""

from gateway.dispatch.coordinator import Coordinator
from gateway.dispatch.sink import Sink

__all__ = ["Coordinator", "Sink"]
