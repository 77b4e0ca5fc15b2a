"""Samples cut for a stream: joined base64 is the whole audio, and every chunk is whole samples."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audio import Cutter, seconds

parts = st.lists(st.tuples(st.binary(max_size=50), st.booleans()), max_size=20)


@given(parts=parts, chunk=st.sampled_from([6, 12, 24]))
def test_joined_base64_is_the_whole_audio(parts: list[tuple[bytes, bool]], chunk: int) -> None:
    cutter, chunks = Cutter(chunk), []
    for part, flush in parts:
        chunks += cutter.push(part)
        if flush:
            chunks.append(cutter.flush())
    whole = b"".join(part for part, _ in parts)
    if len(whole) % 2:
        with pytest.raises(ValueError, match="half a sample"):
            cutter.finish()
        return
    assert all(len(piece) % 6 == 0 for piece in chunks)
    chunks.append(cutter.finish())
    text = "".join(base64.b64encode(piece).decode() for piece in chunks)
    assert base64.b64decode(text, validate=True) == whole
    assert cutter.samples == len(whole) // 2


def test_a_chunk_is_a_tenth_of_a_second() -> None:
    cutter = Cutter()
    assert cutter.push(bytes(4799)) == []
    assert cutter.push(bytes(4803)) == [bytes(4800), bytes(4800)]
    assert cutter.finish() == bytes(2)
    assert seconds(bytes(4800)) == 0.1


@pytest.mark.parametrize("chunk", [0, -6, 4, 4801])
def test_a_chunk_that_cannot_be_joined_is_refused(chunk: int) -> None:
    with pytest.raises(ValueError, match=f"chunk is {chunk} bytes: expected a multiple of 6"):
        Cutter(chunk)
