"""Every admin endpoint: who may call it, what its description says, what it must not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.http import authorization
from gateway.api.admin import described
from gateway.api.admin.page import assets
from tests.integration.conftest import Pair, World
from tests.integration.test_errors import error_of

CLIENT, ADMIN, ENGINES = "client-s3cret", "admin-s3cret", "engine-s3cret"


@pytest.fixture
async def keyed(world: World) -> Pair:
    await world.engines(api_key=ENGINES)
    return await world.gateway(api_key=(CLIENT,), admin_key=ADMIN, engine_api_key=ENGINES)


async def operations(pair: Pair) -> list[tuple[str, str, dict[str, Any]]]:
    paths = (await pair.client.get("/openapi.json")).json()["paths"]
    return [
        (method.upper(), path.format(engine_id="10.9.9.9:1", request_id="nobody"), operation)
        for path, methods in paths.items()
        if path.startswith("/admin")
        for method, operation in methods.items()
    ]


async def test_every_call_wants_the_admin_key(keyed: Pair) -> None:
    listed = await operations(keyed)
    assert len(listed) >= 13
    for method, path, _ in listed:
        seen = {}
        for name, headers in (
            ("none", {}),
            ("nonsense", authorization("nonsense")),
            ("no bearer", {"authorization": f"Basic {ADMIN}"}),
            ("client", authorization(CLIENT)),
        ):
            reply = await keyed.client.request(method, path, headers=headers)
            seen[name] = reply.status_code
            error_of(reply.json())
        assert seen == {"none": 401, "nonsense": 401, "no bearer": 401, "client": 403}, (method, path)
        async with keyed.client.stream(method, path, headers=authorization(ADMIN)) as reply:
            assert reply.status_code not in (401, 403), (method, path)


async def test_without_an_admin_key_clients_may_look_and_change_nothing(world: World) -> None:
    pair = await world.gateway(api_key=(CLIENT,))
    id_ = pair.decode_url.removeprefix("http://")
    assert (await pair.client.get("/admin/topology")).status_code == 401
    pair.client.headers.update(authorization(CLIENT))
    assert (await pair.client.get("/admin/topology")).status_code == 200
    for method, path in (("POST", f"engines/{id_}/drain"), ("DELETE", f"engines/{id_}"), ("DELETE", "requests/x")):
        reply = await pair.client.request(method, f"/admin/{path}")
        assert (reply.status_code, error_of(reply.json())["code"]) == (403, "forbidden")
        assert "DUET_ADMIN_KEY" in reply.text


async def test_a_page_of_another_site_changes_nothing(pair: Pair) -> None:
    """Where there is no key, a browser on the operator's machine would carry any site's request here."""
    path = f"/admin/engines/{pair.decode_url.removeprefix('http://')}/drain"
    reply = await pair.client.post(path, headers={"sec-fetch-site": "cross-site"})
    assert reply.status_code == 403
    for site in ("same-origin", "none"):
        assert (await pair.client.post(path, headers={"sec-fetch-site": site})).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://127.0.0.1:1", 403),
        ("http://{host}", 200),
        ("https://{host}", 200),
    ],
)
async def test_nor_where_a_browser_does_not_tell_the_site(pair: Pair, origin: str, status: int) -> None:
    """Over plain http, but for localhost, a browser sends `Origin` alone; another port of the host is another site."""
    path = f"/admin/engines/{pair.decode_url.removeprefix('http://')}/undrain"
    host = pair.client.base_url.netloc.decode()
    reply = await pair.client.post(path, headers={"origin": origin.format(host=host)})
    assert reply.status_code == status


async def test_another_port_of_the_same_host_is_another_site(pair: Pair) -> None:
    path = f"/admin/engines/{pair.decode_url.removeprefix('http://')}/drain"
    assert (await pair.client.post(path, headers={"sec-fetch-site": "same-site"})).status_code == 403


async def test_no_secret_is_told(keyed: Pair) -> None:
    keyed.client.headers.update(authorization(CLIENT))
    reply = await keyed.chat()
    keyed.client.headers.update(authorization(ADMIN))
    record = await keyed.record_in("finished", reply.headers["x-duet-request-id"])
    texts = [(await keyed.client.get(f"/admin/{path}")).text for path in ("topology", "engines", "requests", "config")]
    texts += [str(record), str(dict(reply.headers))]
    texts += [asset.body.decode() for asset in assets().values()]
    texts += [(await keyed.client.get("/openapi.json")).text, (await keyed.client.get("/metrics")).text]
    for text in texts:
        assert "s3cret" not in text
        assert "remote_block_ids': [" not in text


async def test_the_config_is_as_it_was_resolved(keyed: Pair) -> None:
    listed = (await keyed.client.get("/admin/config", headers=authorization(ADMIN))).json()["settings"]
    found = {one["name"]: one for one in listed}
    assert list(found) == list(type(keyed.settings).model_fields)
    assert found["api_key"]["value"] == "1 set"
    assert (found["redis_url"]["value"], found["redis_url"]["secret"]) == ("set", True)
    assert found["decode"]["value"] == [keyed.decode_url]
    assert (found["owner_lease"]["value"], found["owner_lease"]["default"]) == (2.0, False)
    assert (found["port"]["value"], found["port"]["default"]) == (8000, True)
    assert found["on_prefill_failure"]["value"] == "retry"


def examples(operation: dict[str, Any]) -> Iterator[Any]:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            yield from (content.get("example") for content in response["content"].values())


async def test_every_endpoint_is_described_with_an_example(pair: Pair) -> None:
    for method, path, operation in await operations(pair):
        assert operation["description"], (method, path)
        assert list(examples(operation)), (method, path)
        assert all(examples(operation)), (method, path)
        assert {"401", "403"} <= set(operation["responses"]), (method, path)


async def test_the_examples_are_what_is_answered(pair: Pair) -> None:
    """Field by field, wherever both sides have something to compare."""
    request_id = (await pair.chat(stream=True)).headers["x-duet-request-id"]
    request = await pair.record_in("finished", request_id)
    engine = pair.decode_url.removeprefix("http://")

    async def get(path: str) -> Any:
        return (await pair.client.get(f"/admin/{path}")).json()

    topology = await get("topology")
    assert topology["edges"]
    for example, answered in (
        (described.TOPOLOGY, topology),
        (described.ENGINES, await get("engines")),
        (described.ENGINE, await get(f"engines/{engine}")),
        (described.REQUESTS, await get("requests")),
        (described.REQUEST, request),
        (described.CONFIG, await get("config")),
        (described.CANCELLED, (await pair.client.delete(f"/admin/requests/{request_id}")).json()),
        (described.REMOVED, (await pair.client.delete(f"/admin/engines/{engine}")).json()),
    ):
        same_fields(example, answered)


FREE = {"models", "identity", "params", "usage", "timings", "phases"}
"""Objects whose fields are names of something."""


def same_fields(example: Any, answered: Any, at: str = "") -> None:
    if isinstance(example, dict) and isinstance(answered, dict) and at.rpartition(".")[2] not in FREE:
        assert set(example) == set(answered), at
        for name, value in example.items():
            same_fields(value, answered[name], f"{at}.{name}")
    elif isinstance(example, list) and isinstance(answered, list) and example and answered:
        same_fields(example[0], answered[0], at)
    elif example is not None and answered is not None:
        numbers = (int, float)
        same = type(example) is type(answered) or (isinstance(example, numbers) and isinstance(answered, numbers))
        assert same, (at, example, answered)
