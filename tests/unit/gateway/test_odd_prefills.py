"""Replies of a prefill that say too little, or something else than what they stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from common.engine import Engine, Role
from gateway.lifecycle import State
from tests.contract.connectors.samples import SAMPLES
from tests.fakes.script import Script, json_reply
from tests.unit.gateway.coordinating import DECODE, PREFILL, KeptSink, Rig, answered, prefilled

PREFILL_2 = Engine.at("http://127.0.0.1:8101", Role.PREFILL)
KV = dict(next(iter(SAMPLES.values())).reply or {})


def reply(**fields: Any) -> Script:
    choice = {"index": 0, "text": "x", "finish_reason": "length"}
    return json_reply({"id": "p", "choices": [choice], "kv_transfer_params": KV, **fields})


async def asked(prefill: Script, *, kv_engine: str | None = None) -> tuple[Rig, KeptSink]:
    """The first prefill answers so, the second as it should."""
    rig = Rig(engines=(replace(PREFILL, kv_engine=kv_engine), PREFILL_2, DECODE))
    rig.client.on(leg="prefill", engine=PREFILL.id, reply=prefill)
    rig.client.on(leg="prefill", engine=PREFILL_2.id, reply=prefilled())
    rig.client.on(leg="decode", reply=answered("hi"))
    rig.fleet.members[PREFILL_2.id].local = 1  # the first one is asked first
    return rig, await rig.ask()


@pytest.mark.parametrize(
    ("prefill", "kv_engine"),
    [
        (reply(usage=None), None),
        (reply(), None),
        (reply(usage={"prompt_tokens": None}), None),
        (reply(usage=None, prompt_token_ids=[1, 2, 3]), None),
        (reply(usage={"prompt_tokens": 109}), None),
        (reply(usage={"prompt_tokens": 110}), "another"),
    ],
)
async def test_what_cannot_be_checked_or_is_anothers_is_prefilled_elsewhere(
    prefill: Script, kv_engine: str | None
) -> None:
    rig, sink = await asked(prefill, kv_engine=kv_engine)
    assert (sink.status, b'"hi"' in sink.body) == (200, True)
    assert len(rig.client.posts_of("prefill")) == 2
    (decode,) = rig.client.posts_of("decode")
    assert decode.json["kv_transfer_params"]["remote_request_id"] == "cmpl-r1-2-prefill-0"
    assert rig.count("duet_retries_total", after="handoff") == 1


async def test_a_prompt_is_as_long_as_its_tokens_where_usage_does_not_tell() -> None:
    rig, sink = await asked(reply(usage=None, prompt_token_ids=list(range(110))))
    assert sink.status == 200
    (decode,) = rig.client.posts_of("decode")
    assert decode.json["kv_transfer_params"]["remote_request_id"] == KV["remote_request_id"]
    await rig.coordinator.drain()
    record = await rig.store.get("r1")
    assert record is not None
    assert record.state is State.FINISHED
