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
from cli.say import show
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


@pytest.mark.parametrize(
    ("text", "seen"), [("a\x1b[2Jb\x00", r"a\x1b[2Jb\x00"), ("é\t\n👩\u200d🚀", "é\t\n👩\u200d🚀"), ("\x9b", r"\x9b")]
)
def test_what_would_steer_a_terminal_is_shown_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, seen: str
) -> None:
    """Elsewhere it stays, but for colours and the like, which typer leaves out."""
    for terminal in (True, False) if "\x1b" not in text else (True,):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        show(iter([text]))
        assert capsys.readouterr().out == (seen if terminal else text) + "\n"


def test_what_flags_ask_for(server: OpenAIServer) -> None:
    result = say(
        server, "--model", "m9", "--system", "Be brief", "--max-tokens", "5", "--temperature", "0", "--seed", "0"
    )
    assert result.exit_code == 0
    ((_, body),) = server.asked
    assert body == {
        "model": "m9",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}],
        "max_tokens": 5,
        "temperature": 0,
        "seed": 0,
        "stream": True,
    }


@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_a_seed_that_would_be_none_is_refused(server: OpenAIServer, seed: str) -> None:
    """vLLM takes -1 for no seed, and the gateway has 63 bits for a Talker's."""
    result = say(server, "--seed", seed)
    assert result.exit_code == 2
    assert "'--seed'" in result.stderr
    assert server.asked == []


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
    result = say(server, "-o", str(out), "--voice", "aiden", "--max-frames", "50", "--seed", str(2**63 - 1))
    assert result.exit_code == 0, result.output
    assert result.stdout == "Paris\n"
    said = re.fullmatch(
        r"first text \d+ ms, first sound \d+ ms, 0\.10 s of speech in \d+\.\d\d s \(real-time factor \d+\.\d\d\), "
        r"(no gap|\d+ ms of gaps) if played as it comes: " + re.escape(f"{out}\n"),
        result.stderr,
    )
    assert said, result.stderr
    assert samples(out) == [1, -2, 300, *range(2400)]
    body = server.asked[-1][1]
    assert body["seed"] == 2**63 - 1
    assert body["modalities"] == ["text", "audio"]
    assert body["audio"] == {"voice": "aiden", "format": "pcm16", "sampling": {"max_frames": 50}}


def test_who_speaks_where_nobody_is_named(server: OpenAIServer, tmp_path: Path) -> None:
    server.body = sse(*SPOKEN, "[DONE]")
    assert say(server, "-o", str(tmp_path / "answer.wav")).exit_code == 0
    assert server.asked[-1][1]["audio"] == {"voice": "ethan", "format": "pcm16"}


def samples(path: Path) -> list[int]:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24000)
        return np.frombuffer(file.readframes(9999), "<i2").tolist()


def told(*events: tuple[float, dict[str, Any]], ended: float) -> str:
    """What is told of pieces that came so many seconds after they were asked for, until `ended`."""
    now = 10.0

    def coming() -> Iterator[dict[str, Any]]:
        nonlocal now
        for at, event in events:
            now = 10.0 + at
            yield event["choices"][0]["delta"]
        now = 10.0 + ended

    heard = Heard(clock=lambda: now)
    list(heard.text(coming()))
    return heard.report(Path("a.wav"))


HALF_A_SECOND = audio(data=sound(*[0] * 12000))


def test_times_are_told_from_when_it_was_asked_until_the_last_sound() -> None:
    said = told((0.25, audio(transcript="a")), (0.5, HALF_A_SECOND), (0.75, audio(transcript="b")), ended=8.0)
    assert said == (
        "first text 250 ms, first sound 500 ms, 0.50 s of speech in 0.50 s (real-time factor 1.00), "
        "no gap if played as it comes: a.wav"
    )


def test_a_gap_is_what_has_not_come_when_it_should_sound() -> None:
    """The second piece comes at the very end of the first, the third and the fourth each 0.25 s after it should."""
    pieces = [(at, HALF_A_SECOND) for at in (0.5, 1.0, 1.75, 2.5)]
    assert told(*pieces[:2], ended=2.0) == (
        "first text never, first sound 500 ms, 1.00 s of speech in 1.00 s (real-time factor 1.00), "
        "no gap if played as it comes: a.wav"
    )
    assert told(*pieces, ended=3.0) == (
        "first text never, first sound 500 ms, 2.00 s of speech in 2.50 s (real-time factor 1.25), "
        "500 ms of gaps if played as it comes: a.wav"
    )


BROKEN = [
    ([*SPOKEN, {"error": {"message": "the Talker is gone", "code": "speech_failed"}}], "the Talker is gone"),
    (SPOKEN, "the answer broke off"),
]


@pytest.mark.parametrize(("events", "said"), BROKEN)
def test_speech_that_breaks_off_is_kept_as_far_as_it_went(
    server: OpenAIServer, tmp_path: Path, events: Any, said: str
) -> None:
    server.body = sse(*events)
    out = tmp_path / "answer.wav"
    result = say(server, "-o", str(out))
    assert result.exit_code == 1
    assert result.stdout == "Paris\n"
    assert result.stderr == f"0.10 s of sound, not all of it, in {out}\nduet: {said}\n"
    assert samples(out) == [1, -2, 300, *range(2400)]


def test_what_ended_it_is_told_even_if_what_was_heard_cannot_be_kept(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "write_bytes", full)
    server.body = sse(*SPOKEN)
    result = say(server, "-o", str(tmp_path / "answer.wav"))
    assert result.exit_code == 1
    no_room = f"duet: {tmp_path / 'answer.wav'} cannot be written: No space left on device\n"
    assert result.stderr == f"{no_room}duet: the answer broke off\n"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([piece("Paris"), "[DONE]"], "the answer has no speech: nothing was said"),
        ([piece("Paris"), {"error": {"message": "the Talker is gone"}}], "the Talker is gone"),
        ([piece("Paris")], "the answer broke off"),
    ],
)
def test_where_nothing_was_heard_there_is_no_file(server: OpenAIServer, tmp_path: Path, events: Any, said: str) -> None:
    server.body = sse(*events)
    result = say(server, "-o", str(tmp_path / "answer.wav"))
    assert failure(result) == f"duet: {said}\n"
    assert result.stdout == "Paris\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["answer.mp3", "answer.wav.gz", "answer.WAVE", "no/answer.flac"])
def test_a_format_that_is_not_written_is_told_before_anything_is_asked(
    server: OpenAIServer, tmp_path: Path, name: str
) -> None:
    out = str(tmp_path / name)
    result = say(server, "-o", out)
    assert result.exit_code == 2
    assert result.stderr == f"duet: -o {out!r}: expected a name that ends in .wav, or has no ending\n"
    assert server.asked == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["answer.WAV", "answer", ".answer"])
def test_names_of_a_wav_file(server: OpenAIServer, tmp_path: Path, name: str) -> None:
    server.body = sse(*SPOKEN, "[DONE]")
    assert say(server, "-o", str(tmp_path / name)).exit_code == 0
    assert len(samples(tmp_path / name)) == 2403


@pytest.mark.parametrize("flag", [("--voice", "ethan"), ("--max-frames", "50")])
def test_flags_of_speech_need_a_file(server: OpenAIServer, flag: tuple[str, str]) -> None:
    result = say(server, *flag)
    assert result.exit_code == 2
    assert result.stderr == f"duet: {flag[0]} {flag[1]}: expected with -o FILE.wav, else nothing is spoken\n"
    assert server.asked == []


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


@pytest.mark.parametrize(
    ("events", "status", "stays"),
    [([*SPOKEN, "[DONE]"], 0, False), (SPOKEN, 1, False), ([piece("Paris")], 1, True)],
)
def test_an_older_file_stays_until_something_was_heard(
    server: OpenAIServer, tmp_path: Path, events: Any, status: int, stays: bool
) -> None:
    server.body = sse(*events)
    out = tmp_path / "answer.wav"
    out.write_bytes(b"older")
    assert say(server, "-o", str(out)).exit_code == status
    assert (out.read_bytes() == b"older") is stays
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


def interrupted(server: OpenAIServer, *args: str, after: bytes) -> tuple[int, bytes, bytes]:
    """Status, what else was said, and stderr, of Ctrl-C after these words."""
    argv = [sys.executable, "-m", "cli.main", "say", "Hello", "--url", server.url, *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdout=pipe, stderr=pipe, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as saying:
        assert saying.stdout is not None
        assert saying.stdout.read(len(after)) == after
        saying.send_signal(signal.SIGINT)
        rest, complaint = saying.communicate(timeout=30)
    return saying.returncode, rest, complaint


def test_ctrl_c_ends_it_cleanly(server: OpenAIServer) -> None:
    server.body, server.hangs = sse(piece("Pa")), True
    assert interrupted(server, after=b"Pa") == (130, b"\n", b"")


def test_ctrl_c_keeps_what_was_heard(server: OpenAIServer, tmp_path: Path) -> None:
    server.body, server.hangs = sse(*SPOKEN, audio(transcript="!")), True
    out = tmp_path / "answer.wav"
    kept = f"0.10 s of sound, not all of it, in {out}\n".encode()
    assert interrupted(server, "-o", str(out), after=b"Paris!") == (130, b"\n", kept)
    assert samples(out) == [1, -2, 300, *range(2400)]


def test_ctrl_c_before_anything_was_heard_is_no_file(server: OpenAIServer, tmp_path: Path) -> None:
    server.body, server.hangs = sse(audio(transcript="Pa")), True
    assert interrupted(server, "-o", str(tmp_path / "answer.wav"), after=b"Pa") == (130, b"\n", b"")
    assert list(tmp_path.iterdir()) == []
