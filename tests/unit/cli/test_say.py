from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from common.ports import free_ports
from tests.unit.cli.openai_server import OpenAIServer, piece, serving, sse

ANSWER = sse(
    {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}, piece("Pa"), piece("ris"), piece(None), "[DONE]"
)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with serving(OpenAIServer(body=ANSWER)) as it:
        yield it


def say(server: OpenAIServer, *args: str) -> Result:
    return CliRunner().invoke(app, ["say", "Hello", "--url", server.url, *args])


def test_the_answer_is_streamed_from_the_first_model(server: OpenAIServer) -> None:
    result = say(server)
    assert result.exit_code == 0
    assert result.stdout == "Paris\n"
    body = {"model": "m1", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 256, "stream": True}
    assert server.asked == [("/v1/models", {}), ("/v1/chat/completions", body)]
    assert server.keys == [None, None]


def test_what_flags_ask_for(server: OpenAIServer) -> None:
    result = say(server, "--model", "m9", "--system", "Be brief", "--max-tokens", "5", "--temperature", "0")
    assert result.exit_code == 0
    ((_, body),) = server.asked
    assert body == {
        "model": "m9",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}],
        "max_tokens": 5,
        "temperature": 0,
        "stream": True,
    }


def test_a_key(server: OpenAIServer) -> None:
    assert say(server, "--api-key", "secret").exit_code == 0
    assert server.keys == ["Bearer secret"] * 2


def test_the_environment(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_URL", server.url)
    monkeypatch.setenv("DUET_API_KEY", "one, two")
    assert CliRunner().invoke(app, ["say", "Hello"]).stdout == "Paris\n"
    assert server.keys == ["Bearer one"] * 2


def failure(result: Result) -> str:
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, b'{"error": {"message": "no such model", "code": "model_not_found"}}', "duet: 404: no such model\n"),
        (502, b"<html>bad gateway</html>", "duet: 502: <html>bad gateway</html>\n"),
        (503, b"", "duet: 503: Service Unavailable\n"),
    ],
)
def test_an_error_is_the_servers_message(server: OpenAIServer, status: int, body: bytes, said: str) -> None:
    server.status, server.body = status, body
    result = say(server)
    assert failure(result) == said
    assert result.stdout == ""


def test_an_error_after_the_first_word(server: OpenAIServer) -> None:
    server.body = sse(piece("Pa"), {"error": {"message": "the engine is gone", "code": None}}, "[DONE]")
    result = say(server)
    assert failure(result) == "duet: the engine is gone\n"
    assert result.stdout == "Pa\n"


def test_a_stream_that_breaks_off(server: OpenAIServer) -> None:
    server.body = sse(piece("Pa"))
    result = say(server)
    assert failure(result) == "duet: the answer broke off\n"
    assert result.stdout == "Pa\n"


def test_a_server_of_another_kind(server: OpenAIServer) -> None:
    server.models_body = b"<html>hello</html>"
    assert failure(say(server)) == f"duet: {server.url}/v1/models is no list of models; is this a Duet gateway?\n"


def test_a_gateway_without_models(server: OpenAIServer) -> None:
    server.models = []
    assert failure(say(server)) == "duet: the gateway serves no model yet\n"


@pytest.mark.parametrize("url", ["nonsense", "http://[", "http://127.0.0.1:{port}"])
def test_nobody_is_there(url: str) -> None:
    url = url.format(port=free_ports(1)[0])
    result = CliRunner().invoke(app, ["say", "Hello", "--url", url])
    assert failure(result).startswith(f"duet: {url}: ")


def test_ctrl_c_ends_it_cleanly(server: OpenAIServer) -> None:
    server.body, server.hangs = sse(piece("Pa")), True
    argv = [sys.executable, "-m", "cli.main", "say", "Hello", "--url", server.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as saying:
        assert saying.stdout is not None
        assert saying.stdout.read(2) == b"Pa"
        saying.send_signal(signal.SIGINT)
        rest, complaint = saying.communicate(timeout=30)
    assert saying.returncode == 130
    assert (rest, complaint) == (b"\n", b"")
