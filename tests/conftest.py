"""Fixtures that every folder may use stand in plugins of their own; this file only names them."""

import pytest

pytest.register_assert_rewrite("tests.e2e.checking")

pytest_plugins = ("tests.redis_server", "tests.real_engines", "tests.no_skips", "tests.together", "tests.patient")
