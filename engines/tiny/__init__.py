"""Tiny random-weight models, made on the spot: the whole of vLLM runs, in seconds and without a download.

| module | what is in it |
| --- | --- |
| `text.py`, `tokenizer.py` | a Qwen3 text model and its tokenizer |
| `omni.py`, `omni_config.py`, `omni_tokenizer.py` | a Qwen3-Omni with all parts, its sizes, and its tokenizer |

`python -m engines.tiny [text|omni] OUT` makes a folder.
"""

from engines.tiny.omni import make_omni
from engines.tiny.text import make_text

__all__ = ["make_omni", "make_text"]
