"""The module `nixl` where only `nixl_cu12` is installed: the package `nixl` would bring every CUDA variant.

It is served by an import hook, when it is first imported and not before: vLLM sets up UCX just before that. The hook
stands last, so an installed `nixl` wins.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGE = "nixl"
BUILD = "nixl_cu12"
_SERVED = {"nixl": "nixl._api", "nixl._api": "nixl_cu12._api", "nixl._bindings": "nixl_cu12._bindings"}
"""Each module that is served, and the one that it has its names from."""


def serve_nixl(*, progress_thread: bool) -> None:
    """`progress_thread` is for agents whose maker does not say. Only the first call in a process counts."""
    if not any(isinstance(finder, NixlFinder) for finder in sys.meta_path):
        sys.meta_path.append(NixlFinder(progress_thread))


class NixlFinder(MetaPathFinder, Loader):
    def __init__(self, progress_thread: bool) -> None:
        self._progress_thread = progress_thread

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _SERVED or find_spec(BUILD) is None:
            return None
        return ModuleSpec(fullname, self, is_package=fullname == PACKAGE)

    def exec_module(self, module: ModuleType) -> None:
        names = vars(import_module(_SERVED[module.__name__]))
        vars(module).update({name: value for name, value in names.items() if not name.startswith("__")})
        if module.__name__ == f"{PACKAGE}._api":
            vars(module)["nixl_agent_config"] = _config(names["nixl_agent_config"], self._progress_thread)


def _config(base: Any, progress_thread: bool) -> Any:
    class AgentConfig(base):  # type: ignore[misc]
        """NIXL's agent configuration, with another default for its first argument."""

        def __init__(self, enable_prog_thread: bool = progress_thread, *args: Any, **kwargs: Any) -> None:
            super().__init__(enable_prog_thread, *args, **kwargs)

    return AgentConfig
