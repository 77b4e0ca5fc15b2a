"""Waiting for real child processes that serve, do not serve, or end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.ports import free_ports
from common.process import Child
from engines.thinker.errors import EngineStartFailed
from engines.thinker.ready import Readiness, phase_of

SERVER = """
import http.server, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""
RAW = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    peer, _ = listener.accept()
    peer.recv(65536)
    peer.sendall(sys.argv[2].encode())
    peer.close()
"""
SILENT = "import time; print('loading', flush=True); time.sleep(600)"
BROKEN = "import sys; print('no such model'); sys.exit(3)"


@contextmanager
def running(tmp_path: Path, code: str, *args: str) -> Iterator[tuple[Child, str]]:
    (port,) = free_ports(1)
    argv = [sys.executable, "-I", "-S", "-c", code, str(port), *args]
    with Child("prefill-1", argv, log=tmp_path / "prefill-1.log") as child:
        yield child, f"http://127.0.0.1:{port}"


def test_waits_until_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with running(tmp_path, SERVER) as (child, url):
        ready = Readiness(child, url, within=30)
        ready.wait()
        assert ready.look()


def test_one_that_ends_is_explained_by_the_end_of_its_log(tmp_path: Path) -> None:
    with running(tmp_path, BROKEN) as (child, url), pytest.raises(EngineStartFailed) as failed:
        Readiness(child, url, within=30).wait()
    assert "prefill-1 ended with status 3" in failed.value.message
    assert failed.value.message.endswith("no such model")


def test_one_that_ended_is_not_ready_because_another_answers(tmp_path: Path) -> None:
    with running(tmp_path, SERVER) as (other, url):
        Readiness(other, url, within=30).wait()
        with Child("late", [sys.executable, "-c", BROKEN], log=tmp_path / "late.log") as late:
            late.wait(30)
            with pytest.raises(EngineStartFailed, match="late ended with status 3"):
                Readiness(late, url, within=30).look()


@pytest.mark.parametrize("reply", ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "what?\r\n\r\n"])
def test_an_answer_that_is_not_200_is_none(tmp_path: Path, reply: str) -> None:
    with running(tmp_path, RAW, reply) as (child, url), pytest.raises(EngineStartFailed, match=r"within 1 s"):
        Readiness(child, url, within=1).wait()


def test_one_that_does_not_answer_in_time(tmp_path: Path) -> None:
    with running(tmp_path, SILENT) as (child, url):
        with pytest.raises(EngineStartFailed, match=f"did not answer {url}/health within 0.5 s"):
            Readiness(child, url, within=0.5).wait()
        assert child.running, "ending it is the caller's business"


def test_waiting_ends_when_nobody_waits_any_more(tmp_path: Path) -> None:
    with running(tmp_path, SILENT) as (child, url):
        Readiness(child, url, within=30).wait(lambda: True)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        (
            "(APIServer pid=8) INFO 11-29 15:31:54 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
            "starting",
        ),
        ("(APIServer pid=8) INFO [model.py:733] Resolved architecture: Qwen3ForCausalLM", "configuration"),
        ("(EngineCore pid=9) INFO [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config:", "engine core"),
        ("(Worker pid=7) INFO [cpu_model_runner.py:68] Starting to load model /models/m...", "weights"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<?, ?it/s]", "weights"),
        ("(Worker pid=7) INFO [default_loader.py:501] Loading weights took 0.01 seconds", "weights are in"),
        ("(EngineCore pid=9) INFO [kv_cache_utils.py:2327] CPU KV cache size: 16,384 tokens", "KV cache"),
        ("(EngineCore pid=9) INFO [core.py:402] init engine (profile, create kv cache) took 0.81 s", "warmed up"),
        ("(APIServer pid=8) INFO [entry.py:140] Starting vLLM server on http://127.0.0.1:53807", "serving"),
        ("(EngineCore pid=9) INFO [factory.py:62] Creating v1 connector with name: NixlPullConnector", None),
        ("(EngineCore pid=9) WARNING [vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs", None),
        ("", None),
    ],
)
def test_phases_of_vllms_log(line: str, phase: str | None) -> None:
    assert phase_of(line) == phase
