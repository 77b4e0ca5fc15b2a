"""An engine without weights that has vLLM's HTTP face: for tests of what stands in front of engines.

What it shares with vLLM 0.32 is held by one suite that real engines pass too, `tests/contract/engine/`:

| fact | vLLM's source |
| --- | --- |
| replies and chunks: fields in their order, ids from `X-Request-Id`, usage, token ids, stop | `entrypoints/openai/` |
| a stream's status leaves before any KV is there: what fails later is an error event under 200 | the same |
| what is refused, and the words, `type`, `param` and int `code` of it | the same, `renderers/`, `sampling_params.py` |
| NIXL pull: the handoff, KV held for a lease, released by a refused decode | `nixl/pull_scheduler.py` |
| chats take `prompt_token_ids` for their messages, completions do not look for them | `renderers/online_renderer.py` |
| prompt tokens by source; a prompt of one token is computed on decode in any case | `v1/metrics/stats.py` |

What only the simulator's own tests hold, after what was seen to happen to real engines (`handoff.py`, `kv.py`): a
handoff that is used twice, late, or for another prompt gives wrong tokens without a word; one without blocks kills the
engine, one without an address hangs. Tokens are a pure function of the tokens before them, so split and unsplit runs
agree, and decode goes on from what the handoff names, so wrong KV shows.

What it is not: there are no batches and no queue, so no request slows another; no prefix cache, so nothing is a local
hit; blocks never run out; sampling without a seed is not random; media are text like any other; and of its timing only
the 5 s after which an idle connection is closed are vLLM's. What would change an answer and is not done here is refused
(`ask.NOT_IMITATED`). It speaks of no connector but NIXL pull, or of none.

| module | what is in it |
| --- | --- |
| `words.py` | a tokenizer, and the "model" |
| `ask.py` | what a request asks for, or why it is refused |
| `answer.py` | one sequence of tokens, and its text |
| `handoff.py`, `kv.py` | what prefill hands over, and the KV that it holds |
| `engine.py` | one engine's state: requests in, tokens out |
| `faults.py`, `calls.py` | what can be made to go wrong; what was asked |
| `shapes.py`, `replies.py`, `metrics.py` | vLLM's JSON, its order in an answer, its counters |
| `app.py`, `server.py` | the HTTP face, and the protocol under it |
| `runner.py`, `__main__.py` | in another program's event loop, or by itself |
"""
