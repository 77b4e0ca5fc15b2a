"""What the gateway adds for itself to what engines are sent, and takes out of what clients get.

| field | leg | why | in replies |
| --- | --- | --- | --- |
| `kv_transfer_params` | both | the connector's routing metadata | stripped, null or not |
| `kv_transfer_params.prompt_token_ids` | decode | decode sees the very tokens that were prefilled | never returned |
| `return_token_ids` | prefill | so that prefill's reply has those tokens | prefill's reply never reaches a client |
| `x-request-id` header | both | an id that no other attempt or leg has | stands in the answer's `id` |

What a client sends in a field of `STEERING` is dropped: those fields steer transfers between engines, and a made-up
value can kill an engine. vLLM reads the same names out of `vllm_xargs`, so they are dropped there too.
"""

STEERING = frozenset({"kv_transfer_params", "ec_transfer_params"})
