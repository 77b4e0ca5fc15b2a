"""Settings: from keywords, from the environment, and documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.settings import Settings

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", ["http://a:1,http://b:2", "http://a:1 http://b:2", " http://a:1,  http://b:2 "])
def test_lists_come_from_the_environment(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_PREFILL", text)
    assert Settings().prefill == ("http://a:1", "http://b:2")


def test_a_keyword_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUET_PORT", "9000")
    assert Settings().port == 9000
    assert Settings(port=9001).port == 9001


def test_keys_do_not_show() -> None:
    settings = Settings(api_key=("s3cret",), redis_url="redis://:s3cret@r/0", admin_key="s3cret")
    assert "s3cret" not in repr(settings)
    assert [k.get_secret_value() for k in settings.api_key] == ["s3cret"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", 70000), ("owner_lease", 0), ("unsplit", "maybe"), ("health_failures", 0), ("max_body_bytes", -1)],
)
def test_a_wrong_value_names_the_setting(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})


def test_the_example_file_has_every_setting_with_its_default() -> None:
    listed = {}
    for line in (ROOT / ".env.example").read_text().splitlines():
        if line.lstrip("#").startswith("DUET_"):
            name, _, value = line.lstrip("#").partition("=")
            listed[name.removeprefix("DUET_").lower()] = value
    assert list(listed) == list(Settings.model_fields)
    assert Settings(**{name: value for name, value in listed.items() if value}) == Settings()


def test_every_setting_says_what_it_is() -> None:
    assert not [name for name, field in Settings.model_fields.items() if not field.description]


@pytest.mark.parametrize("name", ["admin_key", "engine_api_key"])
@pytest.mark.parametrize("blank", ["", " "])
def test_an_empty_key_is_none_that_closes_anything(name: str, blank: str) -> None:
    with pytest.raises(ValueError, match="the key is empty; expected a key, or leave the setting out"):
        Settings(redis_url="redis://r/0", **{name: blank})
