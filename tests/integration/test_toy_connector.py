"""A new connector is one file and one line: here the file is `Toy`, and the line is the `available` fixture's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

import common.connectors as room
from common.connectors import CONNECTORS
from common.connectors.base import CancelPolicy, Connector, Handoff, HandoffContext, Order, Params, PrefillReply
from common.engine import Role
from common.errors import HandoffInvalid
from engines.thinker import EngineSpec, command
from tests.integration.conftest import Pair, World


class Toy(Connector):
    """Prefill is told a colour from its URL, decode its reply with the colour; KV goes as in simulated engines."""

    name = "ToyConnector"
    aliases = ("toy",)
    order = Order.SEQUENTIAL
    cancel = CancelPolicy.LEASE
    options = MappingProxyType({"colour": "the colour of its KV"})

    @property
    def default_lease(self) -> float:
        """5 s, because a toy needs no more."""
        return 5.0

    def prefill_params(self, ctx: HandoffContext) -> Params:
        return {"do_remote_decode": True, "colour": ctx.prefill.facts["colour"]}

    def prefill_headers(self, ctx: HandoffContext) -> Mapping[str, str]:
        return {"x-toy": ctx.transfer_id}

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        if reply is None or reply.params is None:
            raise HandoffInvalid("prefill returned no toy; expected one", engine=ctx.prefill.id)
        params = {**reply.params, "colour": ctx.prefill.facts["colour"]}
        return Handoff(self.name, params, reply.prompt_tokens, reply.received_at + self.lease / 2)

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params:
        return handoff.params

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        return {"kv_connector": self.name, "kv_role": "kv_both"}


class AtOnce(Toy):
    """The same, but decode does not wait for prefill: an id that both are told ties the legs together."""

    name = "AtOnceConnector"
    aliases = ()
    order = Order.CONCURRENT

    def prefill_params(self, ctx: HandoffContext) -> Params:
        return {**super().prefill_params(ctx), "transfer_id": ctx.transfer_id}

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        assert reply is None
        return Handoff(self.name, {"transfer_id": ctx.transfer_id}, None, ctx.now + self.lease / 2)


@pytest.fixture(autouse=True)
def available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "CONNECTORS", (*CONNECTORS, Toy, AtOnce))


async def before(world: World, name: str) -> Pair:
    """A gateway with that connector, chosen by its name in the settings, before two simulated engines."""
    await world.engines()
    assert world.prefill is not None
    engine, url = world.prefill
    world.prefill = engine, f"{url}?colour=red"
    return await world.gateway(connector=name)


@pytest.mark.parametrize("name", ["toy", "Multi(toy, example)"])
async def test_it_carries_a_request_through_the_gateway(world: World, name: str) -> None:
    pair = await before(world, name)
    reply = await pair.chat("play")
    assert reply.status_code == 200, reply.text
    (prefill,), (decode,) = pair.prefill.calls, pair.decode.calls
    assert prefill.body["kv_transfer_params"] == {"do_remote_decode": True, "colour": "red"}
    assert prefill.headers["x-toy"].startswith(reply.headers["x-duet-request-id"])
    assert decode.body["kv_transfer_params"]["colour"] == "red"
    assert pair.decode.sources == {"external_kv_transfer": reply.json()["usage"]["prompt_tokens"]}
    topology = (await pair.client.get("/admin/topology")).json()
    assert topology["connector"]["name"] == ("ToyConnector" if name == "toy" else "MultiConnector")
    record = await pair.record_in("finished", reply.headers["x-duet-request-id"])
    assert record["handoff"]["params"]["colour"] == "red"


async def test_its_legs_may_run_at_once(world: World) -> None:
    pair = await before(world, "atonceconnector")
    reply = await pair.chat("play")
    assert reply.status_code == 200, reply.text
    (prefill,), (decode,) = pair.prefill.calls, pair.decode.calls
    id_ = prefill.body["kv_transfer_params"]["transfer_id"]
    assert decode.body["kv_transfer_params"]["transfer_id"] == id_ == prefill.headers["x-toy"]


async def test_what_it_refuses_the_client_is_told_in_its_words(world: World) -> None:
    pair = await before(world, "toy")
    pair.prefill.rule("null_handoff")
    reply = await pair.chat("play")
    assert reply.status_code == 502
    assert "expected one" in reply.json()["error"]["message"]
    assert pair.decode.calls == []


def test_an_engine_is_started_with_it() -> None:
    args = command(EngineSpec("m", Role.PREFILL, 8100, connector="toy"), device="cpu")
    assert json.loads(args[args.index("--kv-transfer-config") + 1]) == {
        "kv_connector": "ToyConnector",
        "kv_role": "kv_both",
    }
