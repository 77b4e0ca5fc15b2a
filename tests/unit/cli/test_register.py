"""`duet register`, up to where it announces."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from common.engine import Role

URLS = ("--url", "http://e:8100", "--role", "prefill", "--registry", "redis://r:6379/0")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `run` was asked, instead of running it."""
    asked: list[Any] = []
    monkeypatch.setattr("cli.register.run", lambda *args, **named: asked.append((args, named)))
    return asked


def register(*args: str) -> Result:
    return CliRunner().invoke(app, ["register", *args])


def test_what_is_said_of_an_engine_is_declared(ran: list[Any]) -> None:
    result = register(
        *URLS,
        *("--prefix", "p:", "--ask", "http://127.0.0.1:8100", "--connector", "nixl", "--model", "m", "--revision", "r"),
        *("--block-size", "16", "--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8", "--vllm-version", "0.32.0"),
    )
    assert result.exit_code == 0, result.output
    ((args, named),) = ran
    assert args == (
        "http://e:8100",
        Role.PREFILL,
        {
            "connector": "NixlConnector",
            "model": "m",
            "revision": "r",
            "block_size": 16,
            "tensor_parallel_size": 2,
            "kv_cache_dtype": "fp8",
            "vllm_version": "0.32.0",
        },
    )
    assert named == {"registry": "redis://r:6379/0", "prefix": "p:", "ask": "http://127.0.0.1:8100"}


def test_nothing_need_be_said(ran: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_REGISTRY_URL", "redis://r:6379/0")
    assert register(*URLS[:4]).exit_code == 0
    assert ran[0][0][2] == {}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--url", "nonsense", *URLS[2:]), "expected http://host:port"),
        ((*URLS, "--ask", "nonsense"), "expected http://host:port"),
        ((*URLS[:4], "--registry", "http://r"), "the registry's URL cannot be used"),
        ((*URLS, "--connector", "pigeon"), "connector 'pigeon' is not known"),
    ],
)
def test_what_cannot_be_right_is_told(args: tuple[str, ...], said: str) -> None:
    result = register(*args)
    assert result.exit_code == 2
    assert said in result.output
