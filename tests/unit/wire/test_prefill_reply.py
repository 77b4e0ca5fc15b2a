"""What is read of prefill's reply, and what is no reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.errors import EngineBroken, EngineError, EngineRefused, HandoffInvalid
from gateway.wire import Prefilled, parse_prefill_reply

CHAT_REPLY = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": None},
    "prompt_token_ids": [1, 22, 333],
    "kv_transfer_params": {"remote_block_ids": [[1]], "remote_port": 2**40, "x": None, "f": 0.5},
}
COMPLETION_REPLY = {
    "choices": [{"index": 0, "text": "x", "finish_reason": "length", "prompt_token_ids": None}],
    "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    "kv_transfer_params": None,
}


def parsed(reply: dict[str, Any], **changes: Any) -> Prefilled:
    return parse_prefill_reply("e:1", json.dumps({**reply, **changes}).encode())


def test_chat() -> None:
    assert parsed(CHAT_REPLY) == Prefilled(CHAT_REPLY["kv_transfer_params"], b"[1, 22, 333]", 3, None)


def test_completions() -> None:
    assert parsed(COMPLETION_REPLY) == Prefilled(None, None, 3, 2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kv_transfer_params": {}}, Prefilled({}, b"[1, 22, 333]", 3, None)),
        ({"usage": None}, Prefilled(CHAT_REPLY["kv_transfer_params"], b"[1, 22, 333]", 3, None)),
        (
            {"usage": {}, "prompt_token_ids": [0, 2**63 - 1]},
            Prefilled(CHAT_REPLY["kv_transfer_params"], b"[0, 9223372036854775807]", 2, None),
        ),
        ({"usage": None, "prompt_token_ids": []}, Prefilled(CHAT_REPLY["kv_transfer_params"], None, None, None)),
        ({"prompt_token_ids": None}, Prefilled(CHAT_REPLY["kv_transfer_params"], None, 3, None)),
        ({"prompt_token_ids": []}, Prefilled(CHAT_REPLY["kv_transfer_params"], None, 3, None)),
    ],
)
def test_what_may_be_missing(changes: dict[str, Any], expected: Prefilled) -> None:
    assert parsed(CHAT_REPLY, **changes) == expected


def test_the_least_reply() -> None:
    assert parse_prefill_reply("e:1", b'{"choices":[{}]}') == Prefilled(None, None, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choices": []}, "answered with no choice"),
        ({"choices": None}, "answered with no completion.*choices"),
        ({"choices": [{"finish_reason": "error"}]}, "ended with finish_reason error"),
        ({"choices": [{"finish_reason": "abort"}]}, "ended with finish_reason abort"),
        ({"kv_transfer_params": [1]}, "answered with no completion.*kv_transfer_params"),
        ({"kv_transfer_params": "x"}, "answered with no completion.*kv_transfer_params"),
        ({"usage": {"prompt_tokens": "3"}}, "answered with no completion.*usage.prompt_tokens"),
        ({"prompt_token_ids": [1, 2]}, "2 prompt_token_ids; expected usage.prompt_tokens, 3"),
        ({"prompt_token_ids": [1, 2, -3]}, "answered with no completion"),
        ({"prompt_token_ids": [1, 2, "3"]}, "answered with no completion"),
        ({"prompt_token_ids": [1, 2, 2**63]}, "answered with no completion"),
        ({"prompt_token_ids": [1, 2, 2**64]}, "answered with no completion"),
        ({"prompt_token_ids": [1, 2, 10**400]}, "answered with no completion"),
        ({"usage": {"prompt_tokens": -3}}, "answered with no completion"),
        ({"usage": {"prompt_tokens": 2**70}}, "answered with no completion"),
        (
            {"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": -1}}},
            "answered with no completion",
        ),
        ({"prompt_token_ids": "[1,2,3]"}, "answered with no completion"),
    ],
)
def test_a_wrong_reply(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineBroken, match=f"prefill engine e:1 .*{message}") as caught:
        parsed(CHAT_REPLY, **changes)
    assert caught.value.engine == "e:1"


@pytest.mark.parametrize(
    "body", [b"", b"Internal Server Error", b"[]", b"null", b"{}", b'{"error":null}', b"[" * 100_000]
)
def test_no_reply(body: bytes) -> None:
    with pytest.raises(EngineBroken, match="prefill engine e:1 answered with no completion"):
        parse_prefill_reply("e:1", body)


@pytest.mark.parametrize("whole", [False, True])
def test_an_error_under_a_good_status_is_what_it_would_be_under_its_own(whole: bool) -> None:
    for code, kind, status in ((400, EngineRefused, 400), (500, EngineRefused, 500), (401, EngineError, 502)):
        error = {"message": "no", "code": code}
        reply = {"object": "error", **error} if whole else {"error": error, "choices": [{}]}
        with pytest.raises(EngineError, match=r"no$") as caught:
            parse_prefill_reply("e:1", json.dumps(reply).encode())
        assert (type(caught.value), caught.value.status, caught.value.engine) == (kind, status, "e:1")


def test_an_error_under_a_good_status_may_be_the_handoffs() -> None:
    with pytest.raises(HandoffInvalid):
        parse_prefill_reply("e:1", b'{"error":{"message":"no","param":"kv_transfer_params","code":400}}')
