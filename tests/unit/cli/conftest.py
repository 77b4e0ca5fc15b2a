from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting from outside the test: neither a variable nor a file .env nor a model that was made before."""
    for name in [name for name in os.environ if name.startswith("DUET_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUET_CACHE_DIR", str(tmp_path / "cache"))
