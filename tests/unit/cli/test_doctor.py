"""The command: what it takes, what it prints, how it ends. The checks have tests of their own."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cli.doctor import examine as examining
from cli.doctor import installation, show
from cli.doctor.finding import Check, Finding, fault, ok, warning
from cli.doctor.installation import Installation
from cli.main import app
from gateway.settings import Settings

FINE = ok(Check.CORES, "8 cores")
LAX = warning(Check.REDIS_LATENCY, "9.00 ms a round trip", why="each request waits", do="move it", about="r:6379")
WRONG = fault(Check.ENGINE, "no answer", why="it is left out", do="start it", about="decode d:1")
DOCS = Path(__file__).parents[3] / "docs" / "doctor.md"


class Examined:
    """Stands for the examination: keeps what it was given, and finds what it is told to."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = list(findings)
        self.settings: Settings | None = None
        self.options: dict[str, Any] = {}

    async def __call__(self, settings: Settings, **options: Any) -> list[Finding]:
        self.settings, self.options = settings, options
        return self.findings


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    fake = Examined(FINE)
    monkeypatch.setattr(examining, "examine", fake)
    return fake


def doctor(*args: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *args])


@pytest.mark.parametrize(
    ("findings", "status"), [((FINE,), 0), ((FINE, LAX), 0), ((FINE, WRONG), 1), ((LAX, WRONG), 1)], ids=str
)
def test_the_exit_status_tells_a_fault(examined: Examined, findings: tuple[Finding, ...], status: int) -> None:
    examined.findings = list(findings)
    assert doctor().exit_code == status
    assert doctor("--json").exit_code == status


def test_it_takes_what_the_gateway_takes(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_DECODE", "http://env:3")
    monkeypatch.setenv("DUET_CONNECTOR", "mooncake")
    result = doctor(
        *("--host", "0.0.0.0", "--port", "80", "--api-key", "k", "--admin-key", "a", "--log-level", "debug"),
        *("--prefill", "http://p1:1", "--prefill", "http://p2:2", "--connector", "nixl", "--kv-lease", "12.5"),
        *("--redis-url", "redis://r", "--engine-api-key", "e"),
    )
    assert result.exit_code == 0
    chosen = examined.settings
    assert chosen is not None
    assert (chosen.prefill, chosen.decode) == (("http://p1:1", "http://p2:2"), ("http://env:3",))
    assert (chosen.connector, chosen.kv_lease) == ("nixl", 12.5)
    assert chosen.redis_url is not None
    assert chosen.engine_api_key is not None
    assert chosen.engine_api_key.get_secret_value() == "e"
    assert examined.options == {"within": 15.0, "probe": True}


def test_its_own_options(examined: Examined) -> None:
    doctor("--no-probe", "--timeout", "2.5")
    assert examined.options == {"within": 2.5, "probe": False}


def test_a_setting_that_cannot_be_read(examined: Examined) -> None:
    result = doctor("--kv-lease", "0")
    assert result.exit_code == 2
    assert result.stderr == "duet: --kv-lease: Input should be greater than 0; got 0.0\n"
    assert examined.settings is None


def test_without_the_gateways_packages_it_says_so(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "look", lambda: Installation(("aiohttp",), {}, ()))
    result = doctor()
    assert result.exit_code == 1
    assert "fault   installation.gateway  not installed: aiohttp\n" in result.stdout
    assert examined.settings is None


def test_plain_text_is_a_line_for_grep_and_two_for_help(examined: Examined) -> None:
    examined.findings = [FINE, LAX, WRONG]
    assert doctor().stdout.splitlines() == [
        "ok      machine.cores  8 cores",
        "warning redis.latency  r:6379: 9.00 ms a round trip",
        "    why each request waits",
        "    do  move it",
        "fault   engine.reachable  decode d:1: no answer",
        "    why it is left out",
        "    do  start it",
        "1 ok, 1 warning, 1 fault",
    ]


def test_a_terminal_gets_marks_and_colours() -> None:
    out = io.StringIO()
    show.as_text([FINE, WRONG], Console(file=out, force_terminal=True, color_system="standard", width=200))
    assert "\x1b[32m✓" in out.getvalue()
    assert "✗" in out.getvalue()


def test_json_has_a_form_that_stays(examined: Examined) -> None:
    examined.findings = [FINE, LAX, WRONG]
    assert json.loads(doctor("--json").stdout) == {
        "format": 1,
        "worst": "fault",
        "counts": {"ok": 1, "warning": 1, "fault": 1},
        "findings": [
            {"check": "machine.cores", "severity": "ok", "about": "", "what": "8 cores", "why": "", "do": ""},
            {
                "check": "redis.latency",
                "severity": "warning",
                "about": "r:6379",
                "what": "9.00 ms a round trip",
                "why": "each request waits",
                "do": "move it",
            },
            {
                "check": "engine.reachable",
                "severity": "fault",
                "about": "decode d:1",
                "what": "no answer",
                "why": "it is left out",
                "do": "start it",
            },
        ],
    }


def test_the_worst_of_nothing_is_ok() -> None:
    assert json.loads(show.as_json([]))["worst"] == "ok"


def test_with_nothing_set_it_still_says_what_it_can() -> None:
    """No fake: a machine with neither engines nor Redis."""
    result = doctor("--json")
    assert result.exit_code == 1
    found = {(f["check"], f["severity"]) for f in json.loads(result.stdout)["findings"]}
    assert {("settings.engines", "fault"), ("pair.exists", "fault"), ("redis.reachable", "warning")} <= found
    assert ("machine.python", "ok") in found


def test_every_check_is_in_the_docs() -> None:
    page = DOCS.read_text()
    assert [check for check in Check if f"| `{check}` |" not in page] == []
