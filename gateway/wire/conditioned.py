"""The bodies of a Thinker's legs whose answer is spoken.

| field | why |
| --- | --- |
| `vllm_xargs.duet_conditioning` | names the stream in which the engine tells a Talker what it computes |
| `cache_salt` | with sound or pictures in the prompt, one for each attempt: see below |
| `modalities`, `audio` | taken out: it is not the engine that speaks |

A prefix that is found in a cache is not computed, and nobody would tell its rows, so a prompt with media finds none.
Text is told by its ids alone, whoever computed it, so a prompt of text keeps its cache.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from common.errors import BadRequest
from gateway.wire.modalities import ASKS
from gateway.wire.request import ClientRequest, shown

CONDITIONING = "duet_conditioning"
_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def conditioned(request: ClientRequest, stream: str, salt: str) -> ClientRequest:
    """What one leg is sent, as if the client had asked for it. `stream` is unique to the leg, `salt` to the attempt.

    Raises BadRequest for `vllm_xargs` that are no object.
    """
    fields = {name: value for name, value in request.fields.items() if name not in ASKS}
    raw = request.fields.get("vllm_xargs", msgspec.Raw(b"null"))
    try:
        extra = _object(raw) or {}
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest(f"vllm_xargs is {shown(raw)}; expected an object", param="vllm_xargs") from None
    fields["vllm_xargs"] = msgspec.Raw(_encode({**extra, CONDITIONING: stream}))
    if request.media:
        fields["cache_salt"] = msgspec.Raw(_encode(salt))
    return replace(request, fields=fields)
