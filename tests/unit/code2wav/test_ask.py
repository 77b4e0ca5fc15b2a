"""What the vocoder is asked is checked before anything is pulled."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from common.errors import BadRequest
from engines.code2wav.app import Ask


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 200_000, None),
        (b'{"codes":' * 200_000, None),
        (b"{}", "codes"),
        (b'{"codes": [[[]]]}', "codes"),
        (b'{"codes": "x", "from_sample": -1}', "from_sample"),
        (b'{"codes": "x", "more": 1}', None),
    ],
)
def test_a_body_is_refused_by_field(body: bytes, field: str | None) -> None:
    with pytest.raises(BadRequest) as caught:
        Ask.read(body)
    assert caught.value.param == field
