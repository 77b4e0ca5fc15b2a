"""vLLM's ExampleConnector without the prompts that it dies of. `kv_connector_module_path` names this module.

vLLM 0.32 looks for a prompt's files under one block less than it writes and reads them, where a prompt is one token
longer than its full blocks (`example_connector.py`: `align_to_block_size` of the length less one, and of the length).
Once such a folder is there, a prompt of one token is said to load -32 tokens of it, one of 65 tokens to read a file
that nobody wrote, and the engine stops: prefill and decode alike.
"""

from __future__ import annotations

from vllm.distributed.kv_transfer.kv_connector.v1 import example_connector


class ExampleConnector(example_connector.ExampleConnector):
    def _found_match_for_prompt(self, prompt_token_ids: list[int], mm_hashes: list[str]) -> bool:
        """Those prompts are not found: the engine computes them."""
        length = len(prompt_token_ids)
        if length <= self._block_size or length % self._block_size == 1:
            return False
        return super()._found_match_for_prompt(prompt_token_ids, mm_hashes)
