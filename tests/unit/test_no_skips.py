"""Under CI a skip is a failure."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

TESTS = """
    import pytest

    def test_good(): pass
    def test_skipped(): pytest.skip("no such thing here")
    @pytest.mark.skip(reason="marked")
    def test_marked(): pass
    @pytest.mark.gpu
    def test_gpu(): pytest.skip("no GPU")
    @pytest.mark.optional
    def test_optional(): pytest.skip("not asked for")
"""


@pytest.fixture(params=["true", ""], ids=["CI", "elsewhere"])
def ci(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> bool:
    monkeypatch.setenv("CI", request.param)
    pytester.makeini("[pytest]\nmarkers =\n    gpu: x\n    optional: x\nasyncio_default_fixture_loop_scope = function")
    return bool(request.param)


def test_only_gpu_and_optional_tests_may_skip(pytester: pytest.Pytester, ci: bool) -> None:
    pytester.makepyfile(TESTS)
    outcomes = {"passed": 1, "failed": 1, "errors": 1, "skipped": 2} if ci else {"passed": 1, "skipped": 4}
    pytester.runpytest_inprocess("-p", "tests.no_skips").assert_outcomes(**outcomes)


def test_a_module_that_skips_itself_does_not_pass_either(pytester: pytest.Pytester, ci: bool) -> None:
    pytester.makepyfile('import pytest\npytest.importorskip("no_such_module")\ndef test_good(): pass')
    outcomes = {"errors": 1} if ci else {"skipped": 1}
    pytester.runpytest_inprocess("-p", "tests.no_skips").assert_outcomes(**outcomes)
