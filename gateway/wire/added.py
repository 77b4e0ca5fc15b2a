"""What the gateway adds for itself to what engines are sent, and takes out of what clients send and get.

| field | leg | why | in replies |
| --- | --- | --- | --- |
| `kv_transfer_params` | both | the connector's routing metadata | stripped, null or not |
| `kv_transfer_params.prompt_token_ids` | decode | decode sees the very tokens that were prefilled | never returned |
| `return_token_ids` | prefill | so that prefill's reply has those tokens | prefill's reply never reaches a client |
| `uuid` of media behind a URL | both | both engines know what they download under one name | never returned |
| `vllm_xargs.duet_conditioning`, `cache_salt` | both, if spoken | a Talker hears the engine | never returned |
| `x-request-id` header | both | an id that no other attempt or leg has | stands in the answer's `id` |

What clients send under these names reaches no engine:

| field | why |
| --- | --- |
| `kv_transfer_params`, `ec_transfer_params` | they steer transfers between engines, and a made-up value can kill one |
| the same names in `vllm_xargs` | vLLM reads them there too, of whatever type |
| `duet_conditioning`, `duet_speech` in `vllm_xargs` | our engines name streams by them: a client could name another's |
| `request_id` | vLLM ends a refused transfer under this id: a client could name another's request |

Kept, because people rightly use them and engines guard them by settings of their own: `priority`, `cache_salt`,
`session_id`, the rest of `vllm_xargs`, `chat_template`, `mm_processor_kwargs`, `media_io_kwargs`. No header of a
client reaches an engine, so none can choose a data-parallel rank.
"""

from __future__ import annotations

STEERING = frozenset({"kv_transfer_params", "ec_transfer_params"})
"""Top-level fields that are the engines' business: in no body of a client, in no reply to one."""
XARGS_DROPPED = STEERING | {"duet_conditioning", "duet_speech"}
"""Names in `vllm_xargs` of clients that reach no engine."""
DROPPED = STEERING | {"request_id"}
"""Top-level fields of clients that reach no engine."""
