"""Model folders are whole, and made once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from common.cache import cache_dir
from engines.models import made_once


def test_it_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(draft: Path) -> None:
        made.append(draft)
        (draft / "config.json").write_text("{}")

    out = tmp_path / "deep" / "model"
    for _ in range(2):
        assert made_once(out, make) == out
        assert [path.name for path in out.iterdir()] == ["config.json"]
    assert len(made) == 1


def test_a_failure_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "model"

    def break_off(draft: Path) -> None:
        (draft / "half").touch()
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        made_once(out, break_off)
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]
    made_once(out, lambda draft: (draft / "whole").touch())
    assert (out / "whole").exists()


def test_those_who_ask_meanwhile_wait(tmp_path: Path) -> None:
    out = tmp_path / "model"
    begun, go_on = threading.Event(), threading.Event()
    made: list[str] = []

    def make(name: str, draft: Path) -> None:
        made.append(name)
        begun.set()
        assert go_on.wait(10)
        (draft / name).touch()

    first = threading.Thread(target=lambda: made_once(out, lambda draft: make("first", draft)))
    second = threading.Thread(target=lambda: made_once(out, lambda draft: make("second", draft)))
    first.start()
    assert begun.wait(10)
    second.start()
    assert not out.exists()
    go_on.set()
    first.join(10)
    second.join(10)
    assert made == ["first"]
    assert [path.name for path in out.iterdir()] == ["first"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"DUET_CACHE_DIR": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/duet"),
        ({}, "home/.cache/duet"),
    ],
)
def test_where_models_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("DUET_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, folder in environment.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    assert cache_dir() == tmp_path / expected
    assert cache_dir().is_dir()
