"""A tiny random-weight text model, made on the spot: the whole of vLLM runs, in seconds and without a download.

`text.py` makes the model, `tokenizer.py` its tokenizer. `python -m engines.tiny OUT` makes a folder.
"""

from engines.tiny.text import make_text

__all__ = ["make_text"]
