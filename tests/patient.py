"""hypothesis measures no time in tests: a machine that stands still for a moment is no fault of what they test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("patient")
