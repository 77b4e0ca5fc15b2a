"""`POST /v1/speech`: starts speech for a request and tells how far it is. A vLLM endpoint plugin.

The body is in `ask.py`. The answer is a stream of server-sent events, JSON each, then `[DONE]`:

| event | |
| --- | --- |
| `{"type": "started", "codes": "duet+…", "prompt_tokens": n}` | codes are published there from now on |
| `{"type": "frames", "frames": n}` | so many by now |
| `{"type": "done", "frames": n, "reason": "stop"}` | so many in all; `length` if it was cut |
| `{"type": "error", "error": {…}}` | OpenAI's error object, in place of `done` |

What goes wrong before the first event has a status and OpenAI's error body. A client that leaves ends its request in
the engine. Frames themselves never come here: they go from the worker to Code2Wav.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from common.errors import DuetError
from engines.answering import Streamed, answered, error_of, refused
from engines.talker.ask import Ask
from engines.talker.names import ARCHITECTURE, SPEECH_PLUGIN
from engines.talker.utterance import Done, Event, Frames, Speaker, Started

if TYPE_CHECKING:
    from argparse import Namespace

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

PATH = "/v1/speech"
_TYPES: dict[type, str] = {Started: "started", Frames: "frames", Done: "done"}


class SpeechPlugin:
    """vLLM's `EndpointPlugin`."""

    name = SPEECH_PLUGIN
    required_tasks = None

    def attach_router(self, app: FastAPI) -> None:
        app.add_route(PATH, _speech, methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """A server of another model has no speech: it says so to whoever asks."""
        talks = engine_client is not None and ARCHITECTURE in engine_client.model_config.architectures
        state.duet_speaker = Speaker(engine_client) if talks else None


async def _speech(request: Request) -> Response:
    speaker: Speaker | None = request.app.state.duet_speaker
    if speaker is None:
        return JSONResponse({"error": {"message": "this engine is no Talker", "type": "invalid_request_error"}}, 404)
    try:
        ask = Ask.read(await request.body())
    except DuetError as e:
        return refused(e)
    events = speaker.speak(ask)
    return await answered(
        request.receive,
        events,
        anext(events),
        lambda first: Streamed(_lines(first, events), events, media_type="text/event-stream"),
    )


async def _lines(first: Event, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    """The last event is told once `events` have ended, and the codes with them: whoever hears that all is done may hang
    up at once, and must not be taken for one that left before."""
    yield _told(first)
    try:
        last: Event | None = None
        async for event in events:
            if isinstance(event, Done):
                last = event
            else:
                yield _told(event)
        if last is not None:
            yield _told(last)
    except DuetError as e:
        yield _line({"type": "error", "error": error_of(e)})
    yield b"data: [DONE]\n\n"


def _told(event: Event) -> bytes:
    return _line({"type": _TYPES[type(event)], **asdict(event)})


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
