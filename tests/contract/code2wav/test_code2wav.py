"""Code2Wav over real sockets: the streamed audio is one full pass of transformers' own model, however it is cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.contract.code2wav.conftest import Codes, made_up
from tests.contract.code2wav.hearing import CLOSE, ask, counted
from tests.serving import serving

if TYPE_CHECKING:
    from engines.code2wav.vocoder import Vocoder

WITHIN = 60.0
"""Seconds after which a test has failed."""

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("frames", [1, 3, 4, 5, 29, 30, 80])
async def test_streamed_audio_is_one_full_pass(
    client: httpx.AsyncClient, codes: Codes, whole: Any, frames: int
) -> None:
    said = made_up(frames)
    codes.put("r", said)
    codes.end("r")
    audio, expected = await ask(client, codes.reference("r")), whole(said)
    assert len(audio) == frames * 1920 - 555 == len(expected)
    assert np.abs(audio - expected).max() < CLOSE
    assert expected.std() > 0.05, "silence would be equal too"


async def test_joins_do_not_click(client: httpx.AsyncClient, codes: Codes, whole: Any) -> None:
    said = made_up(100)
    codes.put("r", said)
    codes.end("r")
    jumps = np.abs(np.diff(await ask(client, codes.reference("r"))))
    full = np.abs(np.diff(whole(said)))
    joins = [frames * 1920 - 555 - 1 for frames in range(4, 100, 25)]
    assert np.abs(jumps[joins] - full[joins]).max() < 2 * CLOSE


async def test_requests_that_speak_at_once_do_not_mix(client: httpx.AsyncClient, codes: Codes, whole: Any) -> None:
    said = {f"r{at}": made_up(20 + 7 * at, seed=at) for at in range(8)}
    for name, frames in said.items():
        codes.put(name, frames)
        codes.end(name)
    audio = await asyncio.gather(*(ask(client, codes.reference(name)) for name in said))
    for heard, frames in zip(audio, said.values(), strict=True):
        assert np.abs(heard - whole(frames)).max() < CLOSE
    chunks = sum(1 + -(-(len(frames) - 4) // 25) for frames in said.values())
    assert await counted(client, "duet_code2wav_batch_sum") == chunks
    assert await counted(client, "duet_code2wav_batch_count") < chunks, "nothing was decoded together"


async def test_sound_comes_before_the_last_frame(client: httpx.AsyncClient, codes: Codes) -> None:
    said = made_up(30)
    codes.put("r", said[:4])
    async with client.stream("POST", "/v1/code2wav", json={"codes": codes.reference("r")}) as reply:
        assert reply.headers["content-type"] == "audio/pcm"
        told = [reply.headers[f"x-duet-{name}"] for name in ("sample-rate", "samples-per-frame", "tail-samples")]
        assert told == ["24000", "1920", "555"]
        parts = reply.aiter_raw()
        heard = b""
        while len(heard) < 2 * (4 * 1920 - 555):
            heard += await anext(parts)
        codes.put("r", said[4:])
        codes.end("r")
        async for part in parts:
            heard += part
    assert len(heard) == 2 * (30 * 1920 - 555)


@pytest.mark.parametrize("begin", [1, 1365, 1366, 7124, 7125, 7126, 60_000, 80 * 1920 - 556, 80 * 1920 - 555])
async def test_a_second_server_goes_on_where_the_first_stopped(
    client: httpx.AsyncClient, codes: Codes, whole: Any, begin: int
) -> None:
    said = made_up(80)
    codes.put("r", said)
    codes.end("r")
    audio, expected = await ask(client, codes.reference("r"), begin), whole(said)[begin:]
    assert len(audio) == len(expected)
    assert not len(audio) or np.abs(audio - expected).max() < CLOSE


async def test_frames_that_are_no_sound_are_refused(client: httpx.AsyncClient, codes: Codes) -> None:
    """Whoever counts frames would miss their sound: it is the Talker's fault, and not told as less sound."""
    codes.put("r", np.insert(made_up(10), 2, 2150, axis=0))
    codes.end("r")
    reply = await client.post("/v1/code2wav", json={"codes": codes.reference("r")})
    assert (reply.status_code, reply.json()["error"]["code"]) == (500, "codes_invalid")
    assert "frame 2 has the code 2150: expected 0 to " in reply.json()["error"]["message"]


async def test_an_empty_stream_is_an_empty_answer(client: httpx.AsyncClient, codes: Codes) -> None:
    codes.end("r")
    assert len(await ask(client, codes.reference("r"))) == 0


async def test_a_failure_before_the_first_sound_is_an_answer(client: httpx.AsyncClient, codes: Codes) -> None:
    codes.put("r", made_up(3))
    codes.end("r", "the Talker died")
    reply = await client.post("/v1/code2wav", json={"codes": codes.reference("r")})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (500, "channel_stream_failed")
    assert "the Talker died" in error["message"]
    assert await counted(client, "duet_code2wav_failed_total") == 1


async def test_a_failure_after_it_breaks_the_answer_off(client: httpx.AsyncClient, codes: Codes) -> None:
    codes.put("r", made_up(6))
    codes.end("r", "the Talker died")
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/v1/code2wav", json={"codes": codes.reference("r")})


@pytest.mark.parametrize("frames", [0, 4])
async def test_a_client_that_leaves_ends_its_request(client: httpx.AsyncClient, codes: Codes, frames: int) -> None:
    codes.put("r", made_up(frames))
    url = str(client.base_url) + "/v1/code2wav"
    async with httpx.AsyncClient(timeout=WITHIN) as other:
        asking = asyncio.create_task(other.post(url, json={"codes": codes.reference("r")}))
        async with asyncio.timeout(WITHIN):
            while not codes.publisher._consumers:  # noqa: ASYNC110 - sockets are between
                await asyncio.sleep(0.01)
        assert await counted(client, "duet_code2wav_running") == 1
        asking.cancel()
    async with asyncio.timeout(WITHIN):
        while codes.publisher._consumers or await counted(client, "duet_code2wav_running"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ("no json", None),
        ("[]", None),
        ('{"codes": "duet+ipc:///x?request=r&stage=s", "voice": 1}', None),
        ('{"codes": 1}', "codes"),
        ('{"codes": "http://x"}', None),
        ('{"codes": "duet+ipc:///x?request=r&stage=s", "from_sample": -1}', "from_sample"),
    ],
)
async def test_what_is_no_request_is_refused(client: httpx.AsyncClient, body: str, param: str | None) -> None:
    reply = await client.post("/v1/code2wav", content=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)


async def test_it_tells_who_it_is_and_asks_for_its_key(vocoder: Vocoder, codes: Codes) -> None:
    from engines.code2wav.app import create_app

    codes.end("r")
    body = {"codes": codes.reference("r")}
    app = create_app(vocoder, model="omni", api_key="the key")
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        identity = (await client.get("/duet/identity")).json()
        assert (identity["stage"], identity["role"], identity["model"]) == ("code2wav", "both", "omni")
        assert "channel" not in identity
        for given in ({}, {"authorization": "Bearer another"}, {"authorization": "the key"}):
            for reply in (
                await client.post("/v1/code2wav", json=body, headers=given),
                await client.get("/v1/models", headers=given),
            ):
                assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
        key = {"authorization": "Bearer the key"}
        assert (await client.post("/v1/code2wav", json=body, headers=key)).status_code == 200
        models = (await client.get("/v1/models", headers=key)).json()
        assert [model["id"] for model in models["data"]] == ["omni"]


def test_a_folder_without_code2wav_is_refused(tmp_path: Path, vocoder: Vocoder) -> None:
    from common.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=r"config\.json cannot be read"):
        type(vocoder).load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="no code2wav_config"):
        type(vocoder).load(tmp_path)


def test_it_loads_what_was_saved_in_parts(tmp_path: Path, omni: Path, vocoder: Vocoder) -> None:
    from transformers import Qwen3OmniMoeForConditionalGeneration

    Qwen3OmniMoeForConditionalGeneration.from_pretrained(omni).save_pretrained(tmp_path, max_shard_size="1MB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    said = made_up(5)
    assert np.array_equal(type(vocoder).load(tmp_path).decode([said])[0], vocoder.decode([said])[0])
