"""What can go wrong with an engine's start."""

from __future__ import annotations

from common.errors import DuetError


class EngineStartFailed(DuetError):
    """An engine ended or did not answer in time; the message has the last lines of its log."""

    code = "engine_start_failed"
