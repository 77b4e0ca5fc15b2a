"""Parameters that a split could get wrong, each with what becomes of it: split, whole by a rule, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.prompts import weather

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
Json = dict[str, Any]
SAMPLED = {"temperature": 0.8, "seed": 3}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
CALL = {"tools": [weather("look_up")], "tool_choice": {"type": "function", "function": {"name": "look_up"}}}
SPLIT = "split"
REFUSED = 400


@dataclass(frozen=True)
class Odd:
    """`fate` is SPLIT, the reason for which it goes whole, or REFUSED: by whoever would refuse it unsplit."""

    name: str
    path: str
    fate: str | int
    fields: Callable[[str], Json]
    """Of a text that no engine has in its cache."""

    def fate_of(self, body: Json) -> str | int:
        """vLLM 0.32 streams no log-probabilities of a prompt, and beams in chats only."""
        unstreamed = {"prompt_logprobs"} | ({"use_beam_search"} if self.path == TEXT else set())
        return REFUSED if body.get("stream") and unstreamed & body.keys() else self.fate

    def __str__(self) -> str:
        return f"{'chat' if self.path == CHAT else 'text'}: {self.name}"

    def body(self, text: str) -> Json:
        said = {"prompt": text} if self.path == TEXT else {"messages": [{"role": "user", "content": text}]}
        return {"temperature": 0, "max_tokens": 8, **said, **self.fields(text)}


def _odd(path: str, table: dict[str, tuple[str | int, Json]]) -> list[Odd]:
    return [Odd(name, path, fate, lambda text, fields=fields: fields) for name, (fate, fields) in table.items()]


BOTH: dict[str, tuple[str | int, Json]] = {
    "greedy": (SPLIT, {}),
    "sampled": (SPLIT, {**SAMPLED, "top_p": 0.9, "top_k": 40, "presence_penalty": 0.5}),
    "n": ("several_answers", {**SAMPLED, "n": 2}),
    "n 0": (REFUSED, {"n": 0}),
    "n beyond all": (REFUSED, {**SAMPLED, "n": 10**9}),
    "best_of": (SPLIT, {**SAMPLED, "best_of": 3}),
    "beam search": ("several_answers", {"use_beam_search": True, "n": 2}),
    "one beam": ("beam_search", {"use_beam_search": True}),
    "prompt_logprobs": ("prompt_logprobs", {"prompt_logprobs": 1}),
    "response_format": (SPLIT, {"response_format": JSON_SCHEMA, "max_tokens": 24}),
    "response_format json": (SPLIT, {"response_format": {"type": "json_object"}, "max_tokens": 24}),
    "structured_outputs": (SPLIT, {"structured_outputs": {"choice": ["yes", "no"]}}),
    "min_tokens": (SPLIT, {"min_tokens": 8, "stop": ["a", "e"]}),
    "min_tokens beyond max_tokens": (REFUSED, {"min_tokens": 9, "max_tokens": 2}),
    "max_tokens 1": (SPLIT, {"max_tokens": 1}),
    "max_tokens 0": (REFUSED, {"max_tokens": 0}),
    "max_tokens beyond the model": (REFUSED, {"max_tokens": 10**6}),
    "stop": (SPLIT, {"stop": ["a"], "include_stop_str_in_output": True}),
    "logit_bias": (SPLIT, {"logit_bias": {"300": 5}}),
    "allowed_token_ids": (SPLIT, {"allowed_token_ids": [40, 41, 42]}),
    "odd fields": (SPLIT, {"user": "u", "unknown_field": {"a": [1.0, 1e3]}}),
    "truncated": (SPLIT, {"truncate_prompt_tokens": 5}),
}
ODD = [
    *_odd(TEXT, BOTH),
    *_odd(CHAT, BOTH),
    *_odd(
        TEXT,
        {
            "logprobs": (SPLIT, {"logprobs": 3}),
            "logprobs 0": (SPLIT, {"logprobs": 0}),
            "logprobs of one token": (SPLIT, {"logprobs": 2, "max_tokens": 1}),
            "echo": ("echo", {"echo": True}),
            "echo and logprobs": ("echo_logprobs", {"echo": True, "logprobs": 1}),
            "echo of nothing else": ("echo_only", {"echo": True, "max_tokens": 0}),
            "max_tokens absent": (SPLIT, {"max_tokens": None}),
            "suffix": (REFUSED, {"suffix": " and then"}),
        },
    ),
    *_odd(
        CHAT,
        {
            "logprobs": (SPLIT, {"logprobs": True, "top_logprobs": 3}),
            "logprobs without others": (SPLIT, {"logprobs": True}),
            "logprobs of one token": (SPLIT, {"logprobs": True, "top_logprobs": 2, "max_tokens": 1}),
            "echo": ("echo_logprobs", {"echo": True}),
            "max_completion_tokens": (SPLIT, {"max_tokens": None, "max_completion_tokens": 5}),
            "suffix": (SPLIT, {"suffix": " and then"}),
            "tools that are not to be used": (SPLIT, {**CALL, "tool_choice": "none"}),
            "a tool that is to be used, without a parser for it": (REFUSED, CALL),
            "a tool that may be used, without a parser for it": (REFUSED, {**CALL, "tool_choice": "auto"}),
            "truncated to fit": ("truncate_to_fit", {"truncate_prompt_tokens": -1, "max_tokens": None, "stop": ["a"]}),
        },
    ),
    Odd("one prompt in a list", TEXT, SPLIT, lambda text: {"prompt": [text]}),
    Odd("several prompts", TEXT, "several_prompts", lambda text: {"prompt": [text, text[::-1]]}),
    Odd("several prompts of ids", TEXT, "several_prompts", lambda text: {"prompt": [[5, 6, 7], [8, 9]]}),
    Odd("several prompts and logprobs", TEXT, "several_prompts", lambda text: {"prompt": [text, "b"], "logprobs": 1}),
    Odd("max_tokens absent", CHAT, SPLIT, lambda text: {"max_tokens": None, **_chat_that_leaves_little_room(text)}),
]


def _chat_that_leaves_little_room(text: str) -> Json:
    return {"messages": [{"role": "user", "content": f"{text} {'word ' * 350}"}], "stop": ["a"]}
