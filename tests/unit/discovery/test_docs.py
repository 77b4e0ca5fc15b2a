"""`docs/discovery.md`: its commands are commands, its file and its announcement can be used."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from common.connectors import DEFAULT, connector
from common.engine import Role
from common.registry import TTL, Announcement, Registry
from gateway.discovery.file import LISTS, ListedInFile
from gateway.discovery.names import BehindName
from gateway.settings import Settings
from tests.unit.deploy.test_compose import parsed

PAGE = (Path(__file__).parents[3] / "docs" / "discovery.md").read_text()
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^duet (.*)$", "".join(BLOCKS), re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_one(line: str) -> None:
    parsed(shlex.split(line))


def test_all_of_a_side_cars_flags_are_named() -> None:
    context = parsed(shlex.split(next(line for line in COMMANDS if line.startswith("register"))))
    flags = {flag for parameter in context.command.params for flag in parameter.opts if flag.startswith("--")}
    assert {flag for flag in flags if flag not in PAGE} <= {"--prefix", "--help"}


def test_its_file_is_one(tmp_path: Path) -> None:
    (text,) = [block for block in BLOCKS if block.startswith("prefill:")]
    (tmp_path / "engines.yaml").write_text(text)
    found = ListedInFile(tmp_path / "engines.yaml", connector(DEFAULT)).known
    assert [one.engine.role for one in found] == [Role.PREFILL, Role.DECODE]
    assert all(f"{name}:" in text for name in LISTS)


def test_its_announcement_is_one() -> None:
    key, text, ttl = re.findall(r"^SET (\S+) '(.*)' PX (\d+)$", PAGE, re.MULTILINE)[0]
    said = Announcement.of(text)
    assert key == Registry().entry(said.engine.id)
    assert int(ttl) == TTL * 1000
    assert f"ZADD {Registry().index} {json.loads(text)['since']} {said.engine.id}" in PAGE


def test_its_names_are_ones() -> None:
    names = re.findall(r"dns\+http://[\w.]+:\d+(?:\?\w+=\d+)?", PAGE)
    assert len(names) == 3
    for name in names:
        BehindName(name, Role.PREFILL, connector("mooncake"))


def test_its_variables_are_settings() -> None:
    of_engines = {"DUET_REGISTRY_URL", "DUET_ADVERTISE"}
    settings = {f"DUET_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"DUET_\w+", PAGE)) - of_engines - settings == set()
