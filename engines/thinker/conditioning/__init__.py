"""What a Thinker engine computes of a request, told to the Talker while it is computed. `common/conditioning.py` is the
form.

    request with `duet_conditioning` ─> Telling (what is new in a row) ─> stage channel ─> Talker
    any other request                ─> nothing is looked at, nothing is kept

| module | what is in it |
| --- | --- |
| `telling.py` | which positions of a row are told, each once; pure |
| `listen.py` | hidden states out of vLLM's model |
| `mixin.py` | where it takes hold of the runner |
| `cpu.py`, `gpu.py` | the classes for `--worker-cls` |
| `sides.py` | the rows of both sides of a split, joined; for models that read all of them |

`duet engine thinker --channel …` starts such an engine. Qwen3-Omni's Talker reads ids, and hidden states of sound; that
is what is sent. `DUET_CONDITIONING=all` sends the embedding and hidden state of every position.
"""

from engines.thinker.conditioning.telling import ARGUMENT

__all__ = ["ARGUMENT"]
