"""What is split, what is not, and why."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.wire import parse, plan, unsplit_reason
from gateway.wire.request import CHAT, COMPLETIONS
from tests.unit.wire.bodies import request_of, table_names

UNSPLIT: list[tuple[str, dict[str, Any], str]] = [
    (COMPLETIONS, {"prompt": ["a", "b"]}, "several_prompts"),
    (COMPLETIONS, {"prompt": ["a", "a"], "echo": True, "max_tokens": 0}, "several_prompts"),
    (COMPLETIONS, {"prompt": [[1], [2, 3]]}, "several_prompts"),
    (COMPLETIONS, {"prompt": ["a", "b"], "n": 2}, "several_prompts"),
    (CHAT, {"n": 3, "temperature": 1}, "several_answers"),
    (CHAT, {"n": "2"}, "several_answers"),
    (COMPLETIONS, {"n": 2.0, "suffix": "end"}, "several_answers"),
    (COMPLETIONS, {"prompt": "a", "prompt_embeds": "AAAA"}, "prompt_embeds"),
    (COMPLETIONS, {"prompt_embeds": ["AAAA"]}, "prompt_embeds"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "prompt_embeds", "data": "AA"}]}]}, "prompt_embeds"),
    (CHAT, {"messages": [{"role": "user", "content": [{"prompt_embeds": "AA"}]}]}, "prompt_embeds"),
    (CHAT, {"prompt_logprobs": 0}, "prompt_logprobs"),
    (CHAT, {"prompt_logprobs": False}, "prompt_logprobs"),
    (COMPLETIONS, {"prompt_logprobs": -1}, "prompt_logprobs"),
    (COMPLETIONS, {"echo": True, "logprobs": 0}, "echo_logprobs"),
    (COMPLETIONS, {"echo": 1, "logprobs": False}, "echo_logprobs"),
    (CHAT, {"echo": True}, "echo_logprobs"),
    (CHAT, {"echo": "yes"}, "echo_logprobs"),
    (COMPLETIONS, {"echo": True}, "echo"),
    (COMPLETIONS, {"echo": True, "logprobs": None, "max_tokens": 1}, "echo"),
    (COMPLETIONS, {"echo": True, "max_tokens": 0}, "echo_only"),
    (COMPLETIONS, {"echo": "true", "max_tokens": "0"}, "echo_only"),
    (CHAT, {"use_beam_search": True, "n": 1}, "beam_search"),
    (COMPLETIONS, {"use_beam_search": 1}, "beam_search"),
    (CHAT, {"truncate_prompt_tokens": -1}, "truncate_to_fit"),
    (CHAT, {"truncate_prompt_tokens": "-1", "max_tokens": None}, "truncate_to_fit"),
    (CHAT, {"truncate_prompt_tokens": -1.0, "max_tokens": 5, "max_completion_tokens": 0}, "truncate_to_fit"),
]

SPLIT: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {}),
    (CHAT, {"n": 1}),
    (CHAT, {"n": None}),
    (CHAT, {"n": 0}),
    (CHAT, {"n": "many"}),
    (CHAT, {"logprobs": True, "top_logprobs": 5}),
    (CHAT, {"best_of": 4}),
    (CHAT, {"tools": [], "tool_choice": "auto", "response_format": {"type": "json_object"}}),
    (CHAT, {"prompt_logprobs": None, "echo": False, "use_beam_search": False, "truncate_prompt_tokens": None}),
    (CHAT, {"truncate_prompt_tokens": 5}),
    (CHAT, {"truncate_prompt_tokens": -1, "max_tokens": 5}),
    (CHAT, {"truncate_prompt_tokens": -1, "max_tokens": None, "max_completion_tokens": 5}),
    (CHAT, {"messages": [{"role": "user", "content": 'tell me of "prompt_embeds"'}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]}),
    (CHAT, {"prompt": ["a", "b"], "prompt_embeds": "AA"}),
    (COMPLETIONS, {"prompt": ""}),
    (COMPLETIONS, {"prompt": "[1], [2]"}),
    (COMPLETIONS, {"prompt": []}),
    (COMPLETIONS, {"prompt": [1, 2, 3]}),
    (COMPLETIONS, {"prompt": ["a"]}),
    (COMPLETIONS, {"prompt": [[1, 2]]}),
    (COMPLETIONS, {"prompt_embeds": None}),
    (COMPLETIONS, {"logprobs": 3, "max_tokens": 0}),
    (COMPLETIONS, {"truncate_prompt_tokens": -1}),
    (COMPLETIONS, {"suffix": "end", "n": 1}),
]


@pytest.mark.parametrize(("endpoint", "fields", "reason"), UNSPLIT)
def test_unsplit(endpoint: str, fields: dict[str, Any], reason: str) -> None:
    assert unsplit_reason(request_of(endpoint, **fields)) == reason


@pytest.mark.parametrize(("endpoint", "fields"), SPLIT)
def test_split(endpoint: str, fields: dict[str, Any]) -> None:
    assert unsplit_reason(request_of(endpoint, **fields)) is None


@pytest.mark.parametrize("text", [' [ "a" , "b" ] ', "[\n[1],\t[2]]", '["\\"", ""]'])
def test_a_list_is_seen_however_it_is_written(text: str) -> None:
    assert unsplit_reason(parse(COMPLETIONS, f'{{"model":"m","prompt":{text}}}'.encode())) == "several_prompts"


def test_the_documented_table_is_the_code_and_every_reason_is_tried() -> None:
    assert table_names(plan.__doc__) == set(plan.RULES) == {reason for *_, reason in UNSPLIT}
