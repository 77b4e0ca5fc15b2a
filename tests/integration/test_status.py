"""`duet status` over a real gateway's admin API."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from cli.http import Refused, authorization
from cli.status import Status, as_json, look
from tests.awaiting import until
from tests.integration.conftest import World


async def looked(url: str, key: str) -> Status:
    def at_once() -> Status:
        with httpx.Client(base_url=url, headers=authorization(key)) as client:
            return look(client)

    return await asyncio.to_thread(at_once)  # the gateway runs in this very loop


async def test_it_sees_engines_and_requests_with_the_admins_key(world: World) -> None:
    pair = await world.gateway(api_key=("k",), admin_key="a")
    pair.client.headers.update(authorization("k"))
    reply = await pair.complete(max_tokens=2)
    assert reply.status_code == 200

    async def ended() -> Status | None:
        found = await looked(pair.url, "a")
        return found if found.states == {"finished": 1} else None

    found = await until(ended, "the request is finished")
    assert [(e["role"], e["up"]) for e in found.topology["engines"]] == [("prefill", True), ("decode", True)]
    assert found.requests[0]["id"] == reply.headers["x-duet-request-id"]
    assert json.loads(as_json(found))["states"] == {"finished": 1}


async def test_a_clients_key_is_refused(world: World) -> None:
    pair = await world.gateway(api_key=("k",), admin_key="a")
    with pytest.raises(Refused, match=r"^403: "):
        await looked(pair.url, "k")
