"""OpenAI bodies and streams: split into legs on the way in, put right on the way out. Pure: bytes in, bytes out.

| module | what is in it |
| --- | --- |
| `request.py` | a client's body, read as little as possible |
| `parts.py` | what messages have in them besides text |
| `identity.py` | one name on both legs for media that each engine downloads |
| `shape.py` | how deep and wide a body may be |
| `limits.py` | what is refused because only decode would refuse it |
| `plan.py` | which bodies cannot be split, and why |
| `modalities.py` | whether the answer is wanted as sound |
| `conditioned.py` | what legs are sent whose answer is spoken |
| `spoken.py`, `spoken_stream.py` | a spoken answer, whole and streamed |
| `recalled.py` | earlier answers that messages refer to by their audio |
| `legs.py` | the prefill body and the decode body |
| `prefill_reply.py` | what prefill answered |
| `choices.py` | how an answer ended |
| `reply.py` | decode's whole answer, put right |
| `usage.py` | usage, put right |
| `sse.py` | decode's stream, put right event by event |
| `errors.py` | every error in OpenAI's shape |
| `added.py` | the one table of what the gateway adds for itself, and of what it drops |
"""

from gateway.wire.conditioned import conditioned
from gateway.wire.errors import refusal
from gateway.wire.identity import with_identities
from gateway.wire.legs import RELEASE_PATH, decode_body, prefill_body, release_body
from gateway.wire.limits import check_budget, check_fields
from gateway.wire.plan import unsplit_reason
from gateway.wire.prefill_reply import Prefilled, parse_prefill_reply
from gateway.wire.reply import UnaryAnswer, unary_answer
from gateway.wire.request import ClientRequest, parse
from gateway.wire.sse import EventStream, says_nothing

__all__ = [
    "RELEASE_PATH",
    "ClientRequest",
    "EventStream",
    "Prefilled",
    "UnaryAnswer",
    "check_budget",
    "check_fields",
    "conditioned",
    "decode_body",
    "parse",
    "parse_prefill_reply",
    "prefill_body",
    "refusal",
    "release_body",
    "says_nothing",
    "unary_answer",
    "unsplit_reason",
    "with_identities",
]
