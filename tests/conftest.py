"""Fixtures that every folder may use stand in plugins of their own; this file only names them."""

pytest_plugins = ("tests.redis_server", "tests.real_engines", "tests.no_skips")
