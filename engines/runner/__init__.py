"""The phase contract on stock vLLM: a runner that tells a model which rows are prompt and which are decode.

| module | what is in it |
| --- | --- |
| `gpu.py`, `cpu.py` | the classes for `--worker-cls` |
| `mixin.py` | where it takes hold of a stock V1 runner |
| `rows.py`, `step.py`, `after.py` | a step's rows, their way through the model's hooks, and their hidden states |
| `mtp.py`, `seeds.py` | multi-token prediction of all decode rows at once, and its generators |
| `kept.py`, `memory.py`, `fed.py`, `pool.py` | what is kept of requests between steps, and how a request goes back |
| `hooks.py` | what a model may bring |
| `runtime.py`, `admission.py` | what is refused before a request, and of one; what to set |
| `seeded.py` | seeded requests on CPUs |
| `journal.py` | a record of every row |
| `serve.py`, `lastwords.py`, `below.py` | vLLM's server, with the reason of its end as the last line of all |
| `parent.py` | an engine's processes end with its server, however that ends |
| `plugin.py`, `identity.py` | vLLM plugins: in every process, and `GET /duet/identity` |
| `errors.py` | the errors |

The contract itself is `common/phase.py`.
"""

from engines.runner.runtime import require_phase_contract

__all__ = ["require_phase_contract"]
