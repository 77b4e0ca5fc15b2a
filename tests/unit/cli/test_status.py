"""`duet status` against a server that answers as it is told; a real gateway's answers are in `tests/integration/`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cli import status as module
from cli.http import Refused
from cli.main import app
from cli.status import Status
from common.ports import free_ports
from tests.unit.cli.listening import QuietHandler, listening

Json = dict[str, Any]


def engine(id_: str, role: str, **more: Any) -> Json:
    well = {"up": True, "fault": None, "draining": False, "models": {"m": 10}, "load": 0, "checked_at": 1.0}
    return {"id": id_, "url": f"http://{id_}", "role": role, **well, **more}


def request(id_: str, state: str, **more: Any) -> Json:
    well = {"model": "m", "prefill": "p:1", "decode": "d:1", "created_at": 100.0, "error": None}
    return {"id": id_, "state": state, **well, **more}


TOPOLOGY: Json = {
    "replica": "box-1",
    "connector": {"name": "NixlConnector"},
    "engines": [
        engine("p:1", "prefill", load=7),
        engine("d:1", "decode", up=False, fault="no answer"),
        engine("d:2", "decode", draining=True),
    ],
    "routable": {"prefill": True, "decode": False},
}
REQUESTS = [
    request("r3", "decoding"),
    request("r2", "failed", error={"message": "the engine is gone"}),
    request("r1", "finished", prefill=None),
    request("r0", "finished"),
]


@dataclass
class Gateway:
    """`answers` is what each path gets: a status and a body."""

    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path with query and key of each request."""
    url: str = ""


def good() -> Gateway:
    listed = {"requests": REQUESTS}
    return Gateway(
        {
            "/admin/topology": (200, json.dumps(TOPOLOGY).encode()),
            "/admin/requests": (200, json.dumps(listed).encode()),
        }
    )


@contextmanager
def serving(gateway: Gateway) -> Iterator[Gateway]:
    class Handler(QuietHandler, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            gateway.asked.append((self.path, self.headers.get("authorization")))
            status, body = gateway.answers[self.path.partition("?")[0]]
            self.reply(status, body)

    with listening(Handler) as gateway.url:
        yield gateway


@pytest.fixture
def server() -> Iterator[Gateway]:
    with serving(good()) as it:
        yield it


def status(server: Gateway, *args: str) -> Result:
    return CliRunner().invoke(app, ["status", "--url", server.url, *args])


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_without_a_terminal_it_prints_once(server: Gateway) -> None:
    result = status(server)
    assert result.exit_code == 0
    found = rows(result.stdout)
    assert found[0] == ["NixlConnector,", "seen", "by", "box-1"]
    assert ["no", "decode", "engine", "can", "be", "routed", "to"] in found
    assert ["p:1", "prefill", "up", "7", "m"] in found
    assert ["d:1", "decode", "down", "0", "m", "no", "answer"] in found
    assert ["d:2", "decode", "draining", "0", "m"] in found
    assert ["requests:", "1", "decoding,", "1", "failed,", "2", "finished"] in found
    assert server.asked == [("/admin/topology", None), ("/admin/requests?limit=200", None)]
    newest = [row for row in found if row[0] in ("r0", "r1", "r2", "r3")]
    assert [row[:2] for row in newest] == [["r3", "decoding"], ["r2", "failed"], ["r1", "finished"], ["r0", "finished"]]
    assert newest[1][-4:] == ["the", "engine", "is", "gone"]
    assert newest[2][-2:] == ["-", "d:1"]


def test_json_is_the_admin_apis(server: Gateway) -> None:
    found = json.loads(status(server, "--json").stdout)
    assert found == {**TOPOLOGY, "states": {"decoding": 1, "failed": 1, "finished": 2}, "requests": REQUESTS}


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        (["--admin-key", "a", "--api-key", "b"], "Bearer a"),
        (["--api-key", "b, c"], "Bearer b"),
    ],
)
def test_keys(server: Gateway, args: list[str], sent: str) -> None:
    assert status(server, *args).exit_code == 0
    assert {key for _, key in server.asked} == {sent}


def test_the_environment(server: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_URL", server.url)
    monkeypatch.setenv("DUET_ADMIN_KEY", "a")
    assert CliRunner().invoke(app, ["status", "--once"]).exit_code == 0
    assert {key for _, key in server.asked} == {"Bearer a"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b'{"error": {"message": "the key is not right"}}'), "duet: 401: the key is not right\n"),
        ((503, b""), "duet: 503: Service Unavailable\n"),
        ((200, b"<html>"), "duet: {url}/admin/topology has no list of engines; is this a Duet gateway?\n"),
        ((200, b'{"engines": 3}'), "duet: {url}/admin/topology has no list of engines; is this a Duet gateway?\n"),
    ],
)
def test_a_refusal_is_the_servers_message(server: Gateway, answer: tuple[int, bytes], said: str) -> None:
    server.answers["/admin/topology"] = answer
    result = status(server)
    assert result.exit_code == 1
    assert result.stderr == said.format(url=server.url)
    assert result.stdout == ""


@pytest.mark.parametrize("url", ["nonsense", "http://[", "http://127.0.0.1:{port}"])
def test_nobody_is_there(url: str) -> None:
    url = url.format(port=free_ports(1)[0])
    result = CliRunner().invoke(app, ["status", "--url", url])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"duet: {url}: ")
    assert len(result.stderr.splitlines()) == 1


def shown(found: Status, **more: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(module.view(found, now=160.0, **more))
    return out.getvalue()


def test_the_age_of_a_request() -> None:
    found = rows(shown(Status(TOPOLOGY, [request("r1", "decoding", created_at=100.0)])))
    assert ["r1", "decoding", "60", "s", "m", "p:1", "d:1"] in found


def test_more_requests_than_are_looked_at() -> None:
    many = [request(f"r{i}", "finished") for i in range(module.NEWEST)]
    text = shown(Status(TOPOLOGY, many))
    assert "newest 200 requests: 200 finished" in text
    assert f"r{module.SHOWN - 1} " in text
    assert f"r{module.SHOWN} " not in text


def test_no_requests_yet() -> None:
    assert "requests: none yet" in shown(Status(TOPOLOGY, []))


def test_live_it_shows_each_look_and_says_when_one_fails() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160, height=40, color_system=None)
    looks = iter([Refused("503: no Redis"), Status(TOPOLOGY, [request("r9", "finished")]), KeyboardInterrupt()])

    def again() -> Status:
        found = next(looks)
        if isinstance(found, Status):
            return found
        raise found

    with pytest.raises(KeyboardInterrupt):
        module.live(console, Status(TOPOLOGY, [request("r8", "decoding")]), again, 0.001)
    first, trouble, last = out.getvalue().split("seen by box-1")[1:]
    assert "r8" in first
    assert "what is below is old: 503: no Redis" in trouble
    assert "r8" in trouble
    assert "r9" in last
    assert "what is below" not in last


def test_an_answer_without_end_is_given_up(server: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.http.MOST", 100)
    server.answers["/admin/topology"] = (200, b"[" * 101)
    result = status(server)
    assert result.exit_code == 1
    assert "did not end within" in result.stderr


def test_a_narrow_terminal_cuts_neither_state_nor_age() -> None:
    failed = request("0123456789abcdef01234567", "prefilling", error={"message": "the engine is gone"})
    console = Console(file=io.StringIO(), width=80)
    console.print(module.view(Status(TOPOLOGY, [failed]), now=1234.0))
    (row,) = [line for line in console.file.getvalue().splitlines() if line.startswith(" 0")]  # type: ignore[attr-defined]
    assert "prefilling" in row
    assert "1134 s" in row
    assert "gone" in console.file.getvalue()  # type: ignore[attr-defined]
