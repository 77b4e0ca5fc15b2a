"""What of a NIXL handoff never reaches decode, beyond what holds for every connector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.connectors import connector
from common.connectors.base import Handoff, HandoffContext, PrefillReply
from common.engine import Engine, Role
from common.errors import HandoffExpired, HandoffInvalid
from tests.contract.connectors.samples import SAMPLES

DECODE = Engine.at("http://127.0.0.1:8200", Role.DECODE)
RECEIVED, LEASE, PROMPT = 1_700_000_000.0, 30.0, 110
NAMES = [name for name, sample in SAMPLES.items() if "remote_block_ids" in sample.required]

each = pytest.mark.parametrize("name", NAMES)


def handed_over(name: str, prompt: int | None = PROMPT, kv_engine: str | None = None, **changes: Any) -> Handoff:
    prefill = replace(SAMPLES[name].prefill(), kv_engine=kv_engine)
    reply = PrefillReply({**(SAMPLES[name].reply or {}), **changes}, prompt, RECEIVED)
    return connector(name, lease=LEASE).handoff(HandoffContext("t", prefill, DECODE, RECEIVED), reply)


@each
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("remote_num_tokens", PROMPT + 1),
        ("remote_num_tokens", 2**40),
        ("remote_num_tokens", 108),
        ("remote_num_tokens", True),
        ("remote_block_ids", [list(range(PROMPT + 1))]),
        ("remote_block_ids", [[1, 2, 3, 2]]),
        ("remote_block_ids", [[1, 2], [3, 3]]),
        ("remote_block_ids", [[1, -2]]),
        ("remote_block_ids", [[2**63]]),
        ("remote_block_ids", [[1], []]),
        ("remote_block_ids", [[1, True]]),
        ("tp_size", 1025),
        ("tp_size", 0),
        ("dcp_size", 0),
        ("dcp_size", None),
        ("pp_size", 10**9),
        ("remote_port", 2**40),
        ("transfer_mode", "other"),
        ("transfer_mode", None),
        ("remote_prefill_cached_tokens", -1),
        ("remote_prefill_cached_tokens", "3"),
        ("remote_blocks_expiry_time", "soon"),
        ("remote_blocks_expiry_time", True),
        ("remote_blocks_expiry_time", 10**400),
    ],
)
def test_what_would_harm_decode_is_refused(name: str, field: str, value: Any) -> None:
    with pytest.raises(HandoffInvalid, match=rf"kv_transfer_params\.{field} = .*; expected ") as caught:
        handed_over(name, **{field: value})
    assert not isinstance(caught.value, HandoffExpired)
    assert caught.value.engine == SAMPLES[name].prefill().id


@each
@pytest.mark.parametrize(
    "changes",
    [
        {"remote_block_ids": [[2**63 - 1]]},
        {"remote_block_ids": [[0, 0, 5, 6], [5, 6]]},
        {"remote_block_ids": [list(range(PROMPT))]},
        {"tp_size": 1024},
        {"remote_prefill_cached_tokens": None},
    ],
)
def test_what_engines_do_say_is_passed_on(name: str, changes: dict[str, Any]) -> None:
    assert changes.items() <= handed_over(name, **changes).params.items()


@each
def test_without_a_length_of_the_prompt_there_is_no_handoff(name: str) -> None:
    with pytest.raises(HandoffInvalid, match=r"neither usage\.prompt_tokens nor prompt_token_ids"):
        handed_over(name, prompt=None)


@each
def test_the_other_way_of_transfer_is_another_connectors(name: str) -> None:
    mine = (SAMPLES[name].reply or {})["transfer_mode"]
    other = next(mode for mode in ("pull", "push") if mode != mine)
    with pytest.raises(HandoffInvalid, match=f"transfer_mode = '{other}'; expected '{mine}'"):
        handed_over(name, transfer_mode=other)


@each
@pytest.mark.parametrize(
    ("told", "left"), [(None, LEASE), (RECEIVED + 10, 10.0), (RECEIVED + 1000, LEASE), (2**62, LEASE)]
)
def test_prefills_own_expiry_shortens_the_lease_and_never_lengthens_it(name: str, told: Any, left: float) -> None:
    made = handed_over(name, remote_blocks_expiry_time=told)
    assert made.expires_at == pytest.approx(RECEIVED + 0.9 * left)
    assert made.params["remote_blocks_expiry_time"] == told


@each
@pytest.mark.parametrize("told", [RECEIVED, RECEIVED - 1, 0, -5, 1.5])
def test_kv_that_was_given_up_before_the_reply_came_is_expired(name: str, told: float) -> None:
    with pytest.raises(HandoffExpired, match="remote_blocks_expiry_time = "):
        handed_over(name, remote_blocks_expiry_time=told)


@each
def test_an_engine_hands_over_its_own_kv_where_it_says_who_it_is(name: str) -> None:
    own = (SAMPLES[name].reply or {})["remote_engine_id"]
    assert handed_over(name, kv_engine=own).params["remote_engine_id"] == own
    assert handed_over(name, kv_engine=own, remote_engine_id=f"{own}_dp11").params["remote_engine_id"] == f"{own}_dp11"
    for other in ("another", f"{own}_dp", f"{own}_dpx", f"{own}1", f"x{own}_dp1"):
        with pytest.raises(HandoffInvalid, match=f"remote_engine_id = '{other}'; expected '{own}'"):
            handed_over(name, kv_engine=own, remote_engine_id=other)
