"""A real gateway before scripted engines, with a Talker and a Code2Wav that need no words to speak."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.bootstrap import build
from gateway.settings import Settings
from tests.conformance import script
from tests.fakes.engine_server import engine_server
from tests.fakes.scripted import Scripted
from tests.fakes.stages import FakeCode2Wav, FakeTalker, code2wav_server, talker_server
from tests.redis_server import scratch_prefix
from tests.serving import serving

MODEL = "org/scripted-1b"
"""With a slash, as most models have one."""
KEY = "sk-conformance"
FRAMES = 30
"""What each answer has, if it is spoken: 2.4 s."""


@asynccontextmanager
async def scripted_gateway(redis_url: str) -> AsyncIterator[tuple[str, Scripted]]:
    """Its base URL, and what both engines play."""
    engine = Scripted(MODEL, script.book())
    async with AsyncExitStack() as stack:
        prefix = await stack.enter_async_context(scratch_prefix(redis_url))
        prefill, decode = [await stack.enter_async_context(engine_server()) for _ in range(2)]
        prefill.play = decode.play = engine.play
        talker = await stack.enter_async_context(talker_server(FakeTalker(frames=FRAMES, model=MODEL)))
        code2wav = await stack.enter_async_context(code2wav_server(FakeCode2Wav(model=MODEL)))
        settings = Settings(
            _env_file=None,  # type: ignore[call-arg]
            prefill=(prefill.url,),
            decode=(decode.url,),
            talkers=(talker.url,),
            code2wavs=(code2wav.url,),
            redis_url=redis_url,
            redis_prefix=prefix,
            api_key=(KEY,),
        )
        yield await stack.enter_async_context(serving(build(settings))), engine
