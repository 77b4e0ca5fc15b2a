"""A tiny talker that bears witness: it writes down what the runner tells it, and its codes depend on all of it.

It is the smallest whole example of an out-of-tree model under the phase contract, and what the contract is proven
with on real vLLM: a Qwen3 body with random weights, a prompt whose embeddings depend on their positions, a text that
is spoken one row a decode step, and a deterministic MTP of 16 code groups whose sum is fed back. A row in the wrong
phase, a text row too early, another request's hidden state or code: each changes every later code of its request.

| file | what is in it |
| --- | --- |
| `make.py` | the model folder: `python -m engines.witness OUT` |
| `talker.py` | the speaking parts: embeddings and MTP, plain torch |
| `model.py` | the vLLM model and its hooks |
| `record.py` | what it was told, one JSON line a row |
| `plugin.py` | the vLLM general plugin that registers it |
"""
