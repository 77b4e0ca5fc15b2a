"""References and messages: what is written is read again, and what is neither is refused with the reason."""

from __future__ import annotations

import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.channel.errors import ChannelError
from common.channel.frame import ITEM_BYTES, Frame, Rows
from common.channel.reference import MAX_NAME, Key, Reference, address
from common.channel.streams import End
from common.channel.wire import MAX_ASKED, Drop, Message, More, Pull, Wait, from_parts, to_parts

names = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())
keys = st.builds(Key, names, names)
counts = st.integers(0, 2**40)
paths = st.text("abc/._- %é?#&=", min_size=1, max_size=20).map(lambda text: f"ipc:///{text}")
endpoints = paths | st.sampled_from(["tcp://10.0.0.7:7100", "tcp://[::1]:7100", "tcp://thinker-0.duet:65535"])


@st.composite
def arrays(draw: st.DrawFn) -> Rows:
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    nbytes = ITEM_BYTES[dtype]
    for size in shape:
        nbytes *= size
    return Rows.of(dtype, shape, draw(st.binary(min_size=nbytes, max_size=nbytes)))


messages = st.one_of(
    st.builds(Pull, keys, counts, counts),
    st.builds(More, keys, counts),
    st.builds(Drop, keys, st.booleans()),
    st.builds(Frame, counts, st.dictionaries(names, arrays(), max_size=3)),
    st.builds(End, counts, names, st.text()),
    st.just(Wait()),
)


@given(endpoint=endpoints, key=keys)
def test_a_reference_is_text(endpoint: str, key: Key) -> None:
    reference = Reference(endpoint, key)
    assert Reference.parse(str(reference)) == reference
    assert str(reference).isascii()
    assert str(reference).startswith("duet+")
    assert Reference.within(address(endpoint), key) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ipc:///run/x?request=r&stage=s",
        "duet+ipc://run/x?request=r&stage=s",
        "duet+ipc:///run/x?request=r",
        "duet+ipc:///run/x?request=r&stage=",
        "duet+ipc:///run/x?request=r&stage=s&more=1",
        "duet+ipc:///run/x?request=r&stage=s#part",
        f"duet+ipc:///{'x' * 101}?request=r&stage=s",
        "duet+tcp://host?request=r&stage=s",
        "duet+tcp://host:0?request=r&stage=s",
        "duet+tcp://host:65536?request=r&stage=s",
        "duet+tcp://:7100?request=r&stage=s",
        "duet+inproc://x:1?request=r&stage=s",
        "duet+http://[x?request=r&stage=s",
        f"duet+tcp://host:{'1' * 5000}?request=r&stage=s",
        "duet+ipc:///run/\ud800?request=r&stage=s",
        "duet+ipc:///run/x?request=\ud800&stage=s",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ChannelError, match=r"channel (reference|endpoint)"):
        Reference.parse(text)


@pytest.mark.parametrize(
    "channel",
    [
        "",
        "ipc:///run/x",
        "duet+ipc:///run/x?",
        "duet+ipc:///run/x?request=",
        "duet+ipc:///run/x?request=r&stage=s",
        "duet+ipc:///run/x?request=r&stage=s#",
        "duet+ipc:///run/x#",
        f"duet+tcp://host:{'1' * 5000}",
    ],
)
def test_what_is_no_address_has_no_streams(channel: str) -> None:
    """Nor has it one of another name than was asked for."""
    with pytest.raises(ChannelError, match=r"channel (reference|endpoint|address)") as raised:
        Reference.within(channel, Key("r", "s"))
    assert len(raised.value.message) < 500


@given(messages)
def test_a_message_is_read_again(message: Message) -> None:
    assert from_parts([bytes(part) for part in to_parts(message)]) == message


@given(st.lists(st.sampled_from([b"PULL", b"FRAME", b"END", b"DROP", b"MORE", b"{}", b"[]", b"\xff", b""]), max_size=4))
def test_other_parts_are_refused(parts: list[bytes]) -> None:
    with pytest.raises(ChannelError, match="channel message"):
        from_parts(parts)


@pytest.mark.parametrize("verb", [b"PULL", b"MORE", b"DROP", b"FRAME", b"END"])
@pytest.mark.parametrize("deep", [b"[" * 200_000, b'{"request":' * 200_000], ids=["arrays", "objects"])
def test_deep_json_is_refused(verb: bytes, deep: bytes) -> None:
    with pytest.raises(ChannelError, match="channel message of 2 parts"):
        from_parts([verb, deep])


@pytest.mark.parametrize("shape", ["[1.0,16]", "[true,16]", '["1",16]', "[-1,-16]", "[1e400,16]"])
def test_shapes_are_whole_numbers(shape: str) -> None:
    told = f'{{"index":0,"rows":{{"x":["uint8",{shape}]}}}}'
    with pytest.raises(ChannelError, match="channel message of 3 parts"):
        from_parts([b"FRAME", told.encode(), bytes(16)])


def test_a_frames_buffers_are_not_copied() -> None:
    buffer = bytearray(struct.pack("<4f", 1, 2, 3, 4))
    frame = Frame(0, {"x": Rows.of("float32", (2, 2), buffer)})
    part = to_parts(frame)[2]
    buffer[0] = 255
    assert bytes(part)[0] == 255
    assert frame.nbytes == 16


@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (3,)), ("float33", (4,)), ("float32", (-2, -2)), ("int8", (16,))]
)
def test_rows_fit_their_buffer(dtype: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ChannelError, match=f"rows dtype '{dtype}'.*16 bytes"):
        Rows.of(dtype, shape, bytes(16))


class Three:
    """A whole number that is none of Python's own, as numpy has them."""

    def __index__(self) -> int:
        return 3


def test_any_whole_number_is_a_size() -> None:
    array = Rows.of("uint8", cast(tuple[int, ...], [Three(), 2]), bytes(6))
    assert array.shape == (3, 2)
    message = Frame(0, {"x": array})
    assert from_parts([bytes(part) for part in to_parts(message)]) == message


@pytest.mark.parametrize("size", [3.0, "3", None])
def test_what_is_no_whole_number_is_none(size: Any) -> None:
    with pytest.raises(ChannelError, match="a shape is of whole numbers"):
        Rows.of("uint8", (size,), bytes(3))


@pytest.mark.parametrize("letter", ["x", "\0", "é", "\U0001f600"])
def test_a_name_has_a_most_and_what_has_it_fits(letter: str) -> None:
    name = letter * (MAX_NAME // len(letter.encode()))
    pull = Pull(Key(name, name), 2**40, 2**40)
    parts = [bytes(part) for part in to_parts(pull)]
    assert from_parts(parts) == pull
    assert max(map(len, parts)) <= MAX_ASKED
    long = Reference("tcp://h:1", Key(name + letter, "s"))
    with pytest.raises(ChannelError, match="a name may have 1024 bytes"):
        Reference.parse(str(long))
    for message in (Pull(long.key, 0, 1), More(long.key, 1), Drop(Key("r", name + letter), release=False)):
        with pytest.raises(ChannelError, match="a name may have 1024 bytes"):
            from_parts([bytes(part) for part in to_parts(message)])


def test_rows_stand_in_c_order() -> None:
    with pytest.raises(ChannelError, match="not contiguous"):
        Rows.of("uint8", (8,), memoryview(bytes(16))[::2])
