"""What the engines of a request see as its id: unique for each leg, save where they know each other by it."""

from __future__ import annotations

import pytest

from common.connectors import connector
from tests.unit.gateway.coordinating import DECODE, PREFILL, Rig, answered, prefilled


async def ids_of(kv: str, *, mode: str = "pull") -> list[str]:
    rig = Rig(kv=connector(kv))
    rig.client.on(engine=PREFILL.id, reply=prefilled(transfer_mode=mode))
    rig.client.on(engine=DECODE.id, reply=answered())
    await rig.ask("r1")
    return [seen.headers["x-request-id"] for seen in rig.client.posts]


@pytest.mark.parametrize("kv", ["nixl", "Multi(nixl, example)"])
async def test_each_leg_has_an_id_of_its_own(kv: str) -> None:
    assert await ids_of(kv) == ["r1-1-prefill", "r1-1-decode"]


@pytest.mark.parametrize("kv", ["nixl-push", "Multi(nixl-push, example)"])
async def test_engines_that_know_each_other_by_the_id_are_given_one(kv: str) -> None:
    assert await ids_of(kv, mode="push") == ["r1-1-kv", "r1-1-kv"]
