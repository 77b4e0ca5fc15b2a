from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.speech import Heard
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


def sound(*samples: int) -> str:
    return base64.b64encode(np.array(samples, "<i2").tobytes()).decode()


def audio(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"audio": delta}}]}


SPOKEN = (
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
    audio(id="audio_1", transcript="Pa"),
    audio(data=sound(1, -2, 300)),
    audio(transcript="ris"),
    audio(data=sound(*range(2400))),
    audio(expires_at=1),
)


def test_an_answer_that_is_spoken(server: OpenAIServer, tmp_path: Path) -> None:
    server.body = sse(*SPOKEN, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    out = tmp_path / "answer.wav"
    result = say(server, "-o", str(out), "--voice", "aiden", "--max-frames", "50")
    assert result.exit_code == 0, result.output
    assert result.stdout == "Paris\n"
    said = re.fullmatch(
        r"first text \d+ ms, first sound \d+ ms, 0\.10 s of speech in \d+\.\d\d s \(real-time factor \d+\.\d\d\): "
        + re.escape(f"{out}\n"),
        result.stderr,
    )
    assert said, result.stderr
    with wave.open(str(out)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        assert np.frombuffer(file.readframes(9999), "<i2").tolist() == [1, -2, 300, *range(2400)]
    body = server.asked[-1][1]
    assert body["modalities"] == ["text", "audio"]
    assert body["audio"] == {"voice": "aiden", "format": "pcm16", "sampling": {"max_frames": 50}}


def test_times_are_told_from_when_it_was_asked() -> None:
    times = iter([10.0, 10.25, 10.5, 11.0])
    heard = Heard(clock=lambda: next(times))
    deltas = [event["choices"][0]["delta"] for event in (audio(transcript="a"), audio(data=sound(*range(12000))))]
    assert list(heard.text(iter(deltas))) == ["a"]
    told = "first text 250 ms, first sound 500 ms, 0.50 s of speech in 1.00 s (real-time factor 2.00): a.wav"
    assert heard.report(Path("a.wav")) == told


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([*SPOKEN, {"error": {"message": "the Talker is gone", "code": "speech_failed"}}], "the Talker is gone"),
        (SPOKEN, "the answer broke off"),
        ([piece("Paris"), "[DONE]"], "the answer has no speech: nothing was said"),
    ],
)
def test_speech_that_is_not_whole_is_no_file(server: OpenAIServer, tmp_path: Path, events: Any, said: str) -> None:
    server.body = sse(*events)
    result = say(server, "-o", str(tmp_path / "answer.wav"))
    assert failure(result) == f"duet: {said}\n"
    assert result.stdout == "Paris\n"
    assert not (tmp_path / "answer.wav").exists()


@pytest.mark.parametrize(
    ("where", "said"),
    [("no/answer.wav", "No such file or directory"), ("", "Is a directory"), ("f/a", "Not a directory")],
)
def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(
    server: OpenAIServer, tmp_path: Path, where: str, said: str
) -> None:
    (tmp_path / "f").touch()
    server.body = sse(*SPOKEN, "[DONE]")
    result = say(server, "-o", str(tmp_path / where))
    assert failure(result) == f"duet: {tmp_path / where} cannot be written: {said}\n"
    assert server.asked == []
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("whole", [True, False])
def test_an_older_file_stays_until_the_new_one_is_whole(server: OpenAIServer, tmp_path: Path, whole: bool) -> None:
    server.body = sse(*SPOKEN, *(["[DONE]"] if whole else []))
    out = tmp_path / "answer.wav"
    out.write_bytes(b"older")
    assert say(server, "-o", str(out)).exit_code == (0 if whole else 1)
    assert (out.read_bytes() == b"older") is not whole
    assert [path.name for path in tmp_path.iterdir()] == ["answer.wav"]


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
