"""The fixture's own question: does a Docker engine answer, without waiting long for one that does not."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from tests.redis_server import docker_answers


@pytest.mark.parametrize(
    ("reply", "answers"), [(b"HTTP/1.0 200 OK\r\n\r\nOK", True), (b"HTTP/1.0 404 No\r\n\r\n", False)]
)
def test_an_engine_that_answers(tmp_path: Path, reply: bytes, answers: bool) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        assert docker_answers(f"unix://{path}") is answers
        thread.join()


def test_no_engine(tmp_path: Path) -> None:
    assert not docker_answers(f"unix://{tmp_path}/nobody.sock")
    assert not docker_answers("ssh://somewhere")
