"""What a chat's messages are made of besides text.

A message's content is a string, or a list of parts: `{"type": "text", "text": …}`, `{"type": "image_url", …}`. A part
may leave its type out where another key tells it. The two sets are vLLM 0.32's (`renderers/chat_utils.py`); a test
compares them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "tool_reference"})
MEDIA_KEYS = frozenset(
    {
        "audio_embeds",
        "audio_url",
        "image_embeds",
        "image_pil",
        "image_url",
        "input_audio",
        "input_image",
        "prompt_embeds",
        "video_embeds",
        "video_url",
    }
)
SIGHTS = frozenset({"image_embeds", "image_pil", "image_url", "input_image", "video_embeds", "video_url"})
"""Of these, what is seen."""


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")


_messages = msgspec.json.Decoder(list[_Message]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_part = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def media_kinds(messages: bytes) -> frozenset[str]:
    """The types and keys of all parts that are not text, from the JSON text of `messages`.

    Empty for what is no list of messages: the engine says so.
    """
    if messages.find(b"[", 1) < 0:
        return frozenset()  # every content is one string, and there is nothing to decode
    try:
        contents = [bytes(message.content) for message in _messages(messages)]
        parts = [bytes(part) for content in contents if content.startswith(b"[") for part in _list(content)]
        return frozenset(kind for part in parts if part.startswith(b"{") for kind in _kinds(part))
    except (msgspec.DecodeError, RecursionError):
        return frozenset()


def _kinds(part: bytes) -> Iterator[str]:
    fields = _part(part)
    yield from MEDIA_KEYS & fields.keys()
    kind = msgspec.json.decode(fields.get("type", b'"text"'))
    if not isinstance(kind, str) or kind not in TEXT_TYPES:
        yield str(kind)
