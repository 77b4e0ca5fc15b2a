"""vLLM as a prefill, decode or unsplit engine.

| module | what is in it |
| --- | --- |
| `spec.py` | what an engine should be |
| `launch.py` | from that to vLLM's command line and environment |
| `ready.py` | waiting until it answers, and saying why it does not |
"""

from engines.thinker.launch import command, environment, exec_thinker
from engines.thinker.spec import EngineSpec

__all__ = ["EngineSpec", "command", "environment", "exec_thinker"]
