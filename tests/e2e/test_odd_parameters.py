"""Odd parameters give what one unsplit engine gives, field by field, whole and streamed; or the same refusal."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.checking import SALTS, comparable
from tests.e2e.conftest import Real
from tests.e2e.held import count, finished
from tests.e2e.odd_parameters import CHAT, ODD, REFUSED, SPLIT, TEXT, Odd
from tests.sse import events_of

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]

STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize("path", [TEXT, CHAT], ids=["text", "chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_answers_are_equal_field_by_field(real: Real, path: str, stream: bool) -> None:
    """All of one kind in one test: a gateway for each would take longer than the answers."""
    faults = []
    asked = [odd for odd in ODD if odd.path == path]
    assert len(asked) > 20
    for odd in asked:
        try:
            await check(real, odd, {"model": "tiny", **(STREAM if stream else {}), **odd.body(f"{next(SALTS)} {odd}")})
        except AssertionError as e:
            faults.append(f"{odd}: {e}")
    assert not faults, "\n\n".join(faults)


async def check(real: Real, odd: Odd, body: dict[str, Any]) -> None:
    """That it is answered as an unsplit engine answers it, and went the way that it should."""
    fate = odd.fate_of(body)
    sources, unsplit = await real.sources(), await count(real, "duet_unsplit_total")
    split = await real.client.post(odd.path, json=body)
    whole = await real.whole.post(odd.path, json=body)
    if fate == REFUSED:
        assert (split.status_code, whole.status_code) == (REFUSED, REFUSED), (split.text, whole.text)
        assert told(split) == told(whole)
        return
    assert (split.status_code, whole.status_code) == (200, 200), (split.text, whole.text)
    assert seen(split) == seen(whole)
    assert "transfer_params" not in split.text
    record = await finished(real, split)
    counted = await count(real, "duet_unsplit_total") - unsplit
    if fate == SPLIT:
        assert (record["unsplit"], record["attempt"], counted) == (None, 1, 0)
        assert (await real.sources())["local_compute"] == sources["local_compute"]
    else:
        assert (record["unsplit"], record["prefill"], counted) == (fate, None, 1)


def seen(reply: httpx.Response) -> Any:
    """An answer as it is compared, whole or put together."""
    is_stream = reply.headers["content-type"].startswith("text/event-stream")
    return together(reply.text) if is_stream else comparable(reply.json())


def told(reply: httpx.Response) -> tuple[str, str | None]:
    """What a refusal says: ours passes vLLM's words and field on, but not its `type` and `code`."""
    error = reply.json()["error"]
    return error["message"].partition(" (parameter=")[0], error["param"]


def together(text: str) -> Any:
    """A stream as what it adds up to: engines cut the same answer into events differently."""
    choices: dict[int, dict[str, list[Any]]] = {}
    usage = None
    for event in events_of(text):
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            kept = choices.setdefault(choice["index"], {})
            said = {**choice.pop("delta", {}), **choice}
            for name, value in said.items():
                if name not in ("index", "role") and value not in (None, ""):
                    kept.setdefault(name, []).append(value)
    return comparable({"choices": {i: {n: added(v) for n, v in c.items()} for i, c in choices.items()}, "usage": usage})


def added(values: list[Any]) -> Any:
    """Texts and lists one after another, objects field by field, the last of anything else."""
    if all(isinstance(v, str) for v in values):
        return "".join(values)
    if all(isinstance(v, list) for v in values):
        return [one for value in values for one in value]
    if all(isinstance(v, dict) for v in values):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: added([v[name] for v in values if v.get(name) is not None]) for name in names}
    return values[-1]
