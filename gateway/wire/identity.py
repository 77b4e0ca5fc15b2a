"""One identity for media that each engine downloads for itself.

An engine knows media by a hash of what they are, and finds KV of earlier prompts by it. Media that stand in the body
are the same bytes on both legs. Behind a URL may be another picture a moment later: decode would then keep KV of the
first under the hash of the second, and give it to whoever asks about the second. So such a part is given a `uuid` of
its own, which vLLM takes in place of the hash, unless the client gave one. (Source: vLLM 0.32,
`multimodal/processing/inputs.py`, `get_mm_hashes`.) The price: a picture behind a URL is found in no cache by the next
request. A client that knows it to be the same says so by its own `uuid`.

| part | `uuid` |
| --- | --- |
| `image_url`, `audio_url`, `video_url`, `input_image` with a URL other than `data:` | added |
| with a `uuid` of the client, with `data:`, `input_audio`, embeddings | as it came |
| one whose other media are null | added, and those left out |
| one that has several media, or whose type is another than its key | as it came: a `uuid` would change how it is read |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from gateway.wire.parts import MEDIA_KEYS
from gateway.wire.request import ClientRequest

URL_KEYS = frozenset({"image_url", "audio_url", "video_url"})
_NULL = msgspec.Raw(b"null")

_Fields = dict[str, msgspec.Raw]
_messages = msgspec.json.Decoder(list[_Fields]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_object = msgspec.json.Decoder(_Fields).decode
_encode = msgspec.json.Encoder().encode


def with_identities(request: ClientRequest, request_id: str) -> ClientRequest:
    """The request with a `uuid` in each part that needs one; itself where none does.

    All other fields of the messages stay the bytes that came.
    """
    if URL_KEYS.isdisjoint(request.media):
        return request
    names = map(f"{request_id}-{{}}".format, itertools.count())
    messages = _messages(request.fields["messages"])
    changed = [_name_parts(message, names) for message in messages]
    if not any(changed):
        return request
    return replace(request, fields={**request.fields, "messages": msgspec.Raw(_encode(messages))})


def _name_parts(message: _Fields, names: Iterator[str]) -> bool:
    """Gives each part that needs one the next name; whether there was such a part."""
    content = bytes(message.get("content", _NULL))
    parts = _list(content) if content.startswith(b"[") else []
    changed = False
    for at, part in enumerate(parts):
        fields = _object(part) if bytes(part).startswith(b"{") else {}
        if _is_downloaded(fields):
            parts[at] = msgspec.Raw(_encode({**_without_empty(fields), "uuid": next(names)}))
            changed = True
    if changed:
        message["content"] = msgspec.Raw(_encode(parts))
    return changed


def _without_empty(part: _Fields) -> _Fields:
    """The part less the media keys that are null. Beside a `uuid` vLLM goes by the first key that is there, and no more
    by the type, of whatever value; a part without a type it reads so in any case."""
    if bytes(part.get("type", _NULL)) == b"null":
        return part
    return {key: value for key, value in part.items() if key not in MEDIA_KEYS or bytes(value) != b"null"}


def _is_downloaded(part: Mapping[str, msgspec.Raw]) -> bool:
    """Whether it names one thing by its URL, in a way that means the same to vLLM beside a `uuid`."""
    media = {key for key in MEDIA_KEYS & part.keys() if bytes(part[key]) != b"null"}
    if len(media) != 1 or media.isdisjoint(URL_KEYS) or bytes(part.get("uuid", _NULL)) != b"null":
        return False
    (key,) = media
    kind = msgspec.json.decode(part["type"]) if "type" in part else None
    said = bytes(part[key])
    if said.startswith(b"{") and kind in (None, key):
        said = bytes(_object(said).get("url", _NULL))
    elif kind is not None and not ((kind, key) == ("input_image", "image_url") and "detail" in part):
        return False
    if not said.startswith(b'"') or said[:6].lower() == b'"data:':  # no need to decode megabytes
        return False
    return msgspec.json.decode(said, type=str)[:5].lower() != "data:"
