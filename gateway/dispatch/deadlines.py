"""The waits that one request may take, from the settings. There is no limit on the whole of a healthy stream.

| setting | bounds | from | to |
| --- | --- | --- | --- |
| `admission_timeout` | a request | its last byte | its record being written: engines are asked then |
| `connect_timeout` | each call | its beginning | a connection |
| `headers_timeout` | decode, streamed | the call beginning to leave | the reply's headers |
| `first_token_timeout` | decode, streamed | the same | the first event with content |
| `idle_timeout` | decode, streamed | one event with content | the next |
| `prefill_timeout` | prefill | the call beginning to leave | its whole reply |
| `unary_timeout` | decode, unary | the same | its whole reply |
| `first_token_timeout` | speech | the text's end | the first frame that the Talker tells |
| `idle_timeout` | speech | the text's end, a frame or sound, what is latest | the next frame or sound |

An event has content if it names a choice and more of it than its role: comments, pings and the chunk that opens a chat
have none, and move no deadline on. A first token takes as long as its prompt; `idle_timeout` begins behind it. Speech
waits for what is said, however slowly: until the text is out, only the text's deadlines count.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from gateway.transport.port import Deadlines


@dataclass(frozen=True, slots=True)
class LegDeadlines:
    """Seconds. `speech` is for the calls of a Talker and a Code2Wav; how long these may be silent, `speech_first` and
    `speech_idle`, does not hang on one of them alone (`speech/silence.py`)."""

    prefill: Deadlines
    decode_stream: Deadlines
    decode_unary: Deadlines
    speech: Deadlines
    speech_first: float
    speech_idle: float

    @classmethod
    def of(
        cls, *, connect: float, headers: float, prefill: float, first_token: float, idle: float, unary: float
    ) -> LegDeadlines:
        return cls(
            prefill=_whole(connect, prefill),
            decode_stream=Deadlines(connect, min(headers, first_token), idle, first=first_token),
            decode_unary=_whole(connect, unary),
            speech=Deadlines(connect, inf, inf),
            speech_first=first_token,
            speech_idle=idle,
        )


def _whole(connect: float, within: float) -> Deadlines:
    """For a reply of which nothing is of use before its end."""
    return Deadlines(connect, within, within, whole=within)
