"""Which model `duet up` serves, and where it comes from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from common.cache import cache_dir
from common.errors import ConfigurationError

MAKERS = {"tiny": ("engines.tiny", "tiny-1"), "smollm2": ("engines.smollm2", "smollm2-1")}
"""Models that are made here: the module that makes each, and its folder in the cache. The number goes up when what is
made changes."""


@dataclass(frozen=True, slots=True)
class Model:
    """`name` is what clients call it, `maker` the module that makes the folder, None for a folder that is given."""

    name: str
    directory: Path
    maker: str | None

    @classmethod
    def of(cls, model: str) -> Model:
        """Raises ConfigurationError for a name that is neither known nor a folder with a model."""
        if model in MAKERS:
            maker, folder = MAKERS[model]
            return cls(model, cache_dir() / folder, maker)
        path = Path(model).resolve()
        if not (path / "config.json").is_file():
            raise ConfigurationError(
                f"--model {model!r}: expected {' or '.join(sorted(MAKERS))}, or a folder with a config.json"
            )
        return cls(path.name, path, None)

    def make(self) -> list[str] | None:
        """The command that makes it; None if it is there."""
        if self.maker is None or self.directory.exists():
            return None
        return [sys.executable, "-m", self.maker, str(self.directory)]
