"""What a fake engine will answer: how much, how it ends, usage, handoff, and each piece in vLLM's shape."""

import json

from fake_words import MARK, token

PLP = [None, {"5": {"logprob": -0.25, "rank": 1, "decoded_token": "x"}}]


class Answer:
    """`lim` tokens for each of `choices`, which are pairs of a marker and a number; `wait` ms before the first."""

    def __init__(self, e, p, b, r, rule):
        self.e, self.p, self.b, self.r, self.rule = e, p, b, r, rule
        self.mode = mode = rule.get("mode", "")
        self.chat = p == "/v1/chat/completions"
        self.lim = (
            b.get("max_completion_tokens") or b.get("max_tokens") or b.get("max_output_tokens") or e.set["tokens"]
        )
        self.marks = [self._mark(q) for q in self._prompts()]
        self.choices = [(m, c) for m in self.marks for c in range(b.get("n") or 1)]
        self.finish = "length" if (b.get("max_tokens") or b.get("max_completion_tokens")) else "stop"
        if mode == "eosfirst" and not b.get("ignore_eos"):
            self.lim, self.finish = 1, "stop"
        if mode == "finish_error":
            self.lim, self.finish = 0, "error"
        if mode == "finish_abort":
            self.lim, self.finish = 0, "abort"
        self.rid = ("chatcmpl-" if self.chat else "cmpl-") + r["eid"]
        self.wait = e.set["prefill_ms"] if e.role == "prefill" else e.set["ttft_ms"]
        self.kv = self._handoff()
        self.base = {"id": self.rid, "created": 1700000000, "model": e.model}
        self.prompt_logprobs = PLP if b.get("prompt_logprobs") is not None else None

    def _prompts(self):
        if self.chat or self.p == "/v1/responses":
            return [None]
        prompt = self.b["prompt"]
        several = isinstance(prompt, list) and prompt and not isinstance(prompt[0], int)
        return prompt if several else [prompt]

    def _mark(self, prompt):
        if prompt is None:
            return self.r["marker"] or "mk-none"
        return (MARK.findall(json.dumps(prompt)) or ["mk-none"])[0]

    def _handoff(self):
        e, mode = self.e, self.mode
        k = self.b.get("kv_transfer_params") or {}
        made = e.kv == "nixl" and mode not in ("nokv", "kvabsent") and self.finish == "length"
        if mode != "kvreply" and not (k.get("do_remote_decode") and made):
            return None
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [[e.seq, e.seq + 1]],
            "remote_engine_id": e.engine_id,
            "remote_request_id": self.rid,
            "remote_host": "127.0.0.1",
            "remote_port": e.a.port + 1000,
            "tp_size": 1,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": 7,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
        }

    def usage(self):
        cached = self.e.set["cached"]
        return {
            "prompt_tokens": 7,
            "total_tokens": 7 + self.lim * len(self.choices),
            "completion_tokens": self.lim * len(self.choices),
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        }

    def text(self, m, i):
        b = self.b
        echoed = b["prompt"] if b.get("echo") and i == 0 and isinstance(b.get("prompt"), str) else ""
        return echoed + token(m, i)

    def logprobs(self, i):
        if not self.b.get("logprobs"):
            return None
        if self.chat:
            return {"content": [{"token": f"t{i}", "logprob": -0.5 - i, "bytes": None, "top_logprobs": []}]}
        return {"tokens": [f"t{i}"], "token_logprobs": [-0.5 - i], "text_offset": [0], "top_logprobs": None}
