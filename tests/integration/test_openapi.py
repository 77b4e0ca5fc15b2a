"""The API's description against what the gateway does: requests made from it, right ones and wrong ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from tests.integration.conftest import MODEL, Pair, World

pytestmark = pytest.mark.timeout(600)

EXAMPLES = 20
"""Of each operation, right ones and as many wrong ones; several times as many of the paths that carry traffic."""
HOT = {"/v1/chat/completions": 10, "/v1/completions": 10}
LEFT_OUT = {
    ("GET", "/admin/events"): "it does not end",
    ("POST", "/admin/engines"): "the gateway would call whatever host comes out",
}
ROOM, FEW = 256, 4
MOST = 16384
"""Choices; an engine refuses more."""
WITHIN = 60.0
"""Seconds of one call."""


def described(schema: dict[str, Any]) -> Any:
    """The description, with the one model that there is: any other name is a 404 and nothing more."""
    for path in HOT:
        body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["model"]["enum"] = [MODEL]
    return schemathesis.openapi.from_dict(schema)


def shortened(body: Any) -> Any:
    """A body whose answer is short, if there is one: at most FEW choices of at most ROOM tokens."""
    if isinstance(body, dict) and isinstance(body.get("n"), int) and FEW < body["n"] <= MOST:
        return {**body, "n": FEW}
    return body


async def test_no_request_made_from_the_description_is_answered_otherwise_than_it_says(world: World) -> None:
    await world.engines(max_model_len=ROOM)
    pair = await world.gateway()
    schema = described((await pair.client.get("/openapi.json")).json())
    seen: Counter[str] = Counter()
    faults: list[str] = []

    def ask(case: Case) -> None:
        case.body = shortened(case.body)
        reply = case.call(base_url=pair.url, timeout=WITHIN)
        seen[f"{case.operation.label} {reply.status_code}"] += 1
        declared = case.operation.definition.raw["responses"]
        if str(reply.status_code) not in declared or (reply.status_code >= 500 and reply.status_code != 503):
            faults.append(f"{case.as_curl_command()}\n{reply.status_code} {reply.text[:300]}")
        elif 400 <= reply.status_code < 500:
            error = reply.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}, error

    def ask_all() -> None:
        for found in schema.get_all_operations():
            operation = found.ok()
            if (operation.method.upper(), operation.path) in LEFT_OUT:
                continue
            for mode in GenerationMode:
                cases: st.SearchStrategy[Case] = operation.as_strategy(generation_mode=mode)
                one_after_the_other(cases, EXAMPLES * HOT.get(operation.path, 1), ask)

    await asyncio.to_thread(ask_all)
    print("\n", *(f"{count:5} {what}\n" for what, count in sorted(seen.items())))
    assert not faults, f"{len(faults)} faults:\n" + "\n\n".join(faults[:5])
    assert seen.total() >= 1000
    assert all(seen[f"POST {path} 200"] > 5 and seen[f"POST {path} 400"] > 20 for path in HOT), seen
    assert (await pair.chat()).status_code == 200, "the gateway is well after it"


def one_after_the_other(cases: st.SearchStrategy[Case], count: int, ask: Any) -> None:
    """The same ones in every run."""

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def run(case: Case) -> None:
        ask(case)

    with suppress(Unsatisfiable):  # an operation that takes nothing can be asked nothing wrong
        run()


async def test_what_an_operator_and_a_full_fleet_cause_is_described(pair: Pair) -> None:
    paths = (await pair.client.get("/openapi.json")).json()["paths"]
    for path in HOT:
        assert {"499", "503"} <= paths[path]["post"]["responses"].keys()
