"""Which model `duet up` serves, and where it comes from."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from common.cache import cache_dir
from common.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Maker:
    """A model that is made here: by `python -m MODULE [KIND] FOLDER`, in a folder of the cache. The folder's number
    goes up when what is made changes."""

    command: tuple[str, ...]
    folder: str
    speaks: bool = False


MAKERS = {
    "tiny": Maker(("engines.tiny",), "tiny-1"),
    "omni-tiny": Maker(("engines.tiny", "omni"), "omni-tiny-2", speaks=True),
    "smollm2": Maker(("engines.smollm2",), "smollm2-1"),
}


@dataclass(frozen=True, slots=True)
class Model:
    """`name` is what clients call it; `maker` makes the folder, None for a folder that is given. One that `speaks` is a
    Qwen3-Omni, with Talker and Code2Wav."""

    name: str
    directory: Path
    maker: Maker | None
    speaks: bool = False

    @classmethod
    def of(cls, model: str, said: str = "--model") -> Model:
        """Raises ConfigurationError for a name that is neither known nor a folder with a model; `said` is where it
        stands."""
        if maker := MAKERS.get(model):
            return cls(model, cache_dir() / maker.folder, maker, maker.speaks)
        path = Path(model).resolve()
        try:
            config = json.loads((path / "config.json").read_text())
        except (OSError, ValueError) as e:
            raise ConfigurationError(
                f"{said} {model!r}: expected {', '.join(sorted(MAKERS))}, or a folder with a config.json: {e}"
            ) from None
        return cls(path.name, path, None, {"talker_config", "code2wav_config"} <= config.keys())

    def make(self) -> list[str] | None:
        """The command that makes it; None if it is there."""
        if self.maker is None or self.directory.exists():
            return None
        return [sys.executable, "-m", *self.maker.command, str(self.directory)]

    def make_talker(self) -> list[str] | None:
        """The command that takes the Talker out of it; None if that was done. Only when it is there itself."""
        if self.talker.exists():
            return None
        return [sys.executable, "-m", "engines.talker", str(self.directory), str(self.talker)]

    @property
    def talker(self) -> Path:
        """The folder of its Talker. Only when it is there itself."""
        from engines.talker import talker_folder

        return talker_folder(self.directory)
