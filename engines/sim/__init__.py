"""An engine without weights that has vLLM's HTTP face: for tests of what stands in front of engines.

What it shares with real vLLM 0.32 is held by one suite, `tests/contract/engine/`, that both pass: replies and chunks,
ids, usage, errors, the handoff of a pulled KV, and the counters that prove where prompt tokens came from. Its tokens
are a pure function of the tokens before them, so split and unsplit runs agree, and its decode continues from what the
handoff names, so a wrong handoff gives wrong tokens, as it does there.

What it is not: it has no batch, no memory limit and no chat template of its own, and its answers mean nothing.

| module | what is in it |
| --- | --- |
| `words.py` | a tokenizer, and the "model" |
| `kv.py` | KV that waits for a consumer, and what became of it |
| `faults.py` | what can be made to go wrong |
| `engine.py` | one engine's state: requests in, tokens out |
| `shapes.py` | vLLM's JSON |
| `app.py`, `server.py` | the HTTP face, and the protocol under it |
"""
