"""The runner's mixin on a scripted runner: what is published of whom, and that others cost nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from common.channel import Puller  # noqa: E402
from common.conditioning import EMBEDDING, HIDDEN, MEDIA, Told, read  # noqa: E402
from common.errors import ConfigurationError  # noqa: E402
from engines import channel  # noqa: E402
from engines.runner.errors import RuntimeUnsupported  # noqa: E402
from engines.thinker.conditioning import ARGUMENT  # noqa: E402
from engines.thinker.conditioning import mixin as module  # noqa: E402
from engines.thinker.conditioning.mixin import ConditioningMixin  # noqa: E402

SOUND, LAYER, WIDTH = 9, 2, 4
PROMPT = [1, SOUND, SOUND, 2]


class Body(torch.nn.Module):
    """Gives its rows' positions as hidden states: layer k of position p is 100 k + p, in the order of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: tuple[int, ...] = ()
        self.asked: list[tuple[int, ...]] = []

    def _set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        self.layers = layers

    def forward(self, positions: Any) -> Any:
        self.asked.append(self.layers)
        heard = [(100.0 * layer + positions)[:, None].expand(-1, WIDTH) for layer in self.layers]
        return (positions, heard) if heard else positions


class Stock:
    """As much of a V1 runner as the mixin touches. `step` is one step over requests in the batch's order."""

    def __init__(self, **config: Any) -> None:
        ids = {"audio_token_id": SOUND, "image_token_id": 7, "video_token_id": 8}
        whole = SimpleNamespace(
            thinker_config=SimpleNamespace(**ids), talker_config=SimpleNamespace(accept_hidden_layer=LAYER)
        )
        self.vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(hf_config=whole, enforce_eager=True),
            speculative_config=None,
            parallel_config=SimpleNamespace(pipeline_parallel_size=1),
            scheduler_config=SimpleNamespace(async_scheduling=config.get("async_scheduling", False)),
        )
        self.body = Body()
        self.requests: dict[str, Any] = {}

    def get_model(self) -> Any:
        return torch.nn.ModuleList([self.body])

    def load_model(self) -> None:
        pass

    def _preprocess(self, scheduler_output: Any) -> None:
        pass

    def _model_forward(self, positions: Any) -> Any:
        return self.body(positions)

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        pass


class Runner(ConditioningMixin, Stock):  # type: ignore[misc]
    def step(self, *rows: tuple[str, int, int]) -> Any:
        """`rows`: request, computed, span. Returns what vLLM would go on with."""
        names = [name for name, _, _ in rows]
        starts = [sum(span for _, _, span in rows[:at]) for at in range(len(rows))]
        self.input_batch = SimpleNamespace(req_ids=names, num_computed_tokens_cpu=[c for _, c, _ in rows])
        self.query_start_loc = SimpleNamespace(np=starts)
        new = [SimpleNamespace(req_id=name) for name in names]
        self._preprocess(SimpleNamespace(scheduled_new_reqs=new, num_scheduled_tokens={n: s for n, _, s in rows}))
        positions = torch.cat([torch.arange(c, c + s, dtype=torch.float32) for _, c, s in rows])
        return self._model_forward(positions)

    def add(self, name: str, ids: list[int], **extra: Any) -> None:
        known = [*ids]
        self.requests[name] = SimpleNamespace(
            sampling_params=SimpleNamespace(extra_args=extra or None),
            prompt_token_ids=ids,
            known=known,
            get_token_id=known.__getitem__,
        )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setenv(channel.ENDPOINT, f"ipc://{tmp_path}/rows")
    monkeypatch.setattr(module, "leads", lambda: True)

    def make(mode: str = "media", **config: Any) -> Runner:
        monkeypatch.setenv(module.MODE, mode)
        runner = Runner(**config)
        runner.load_model()
        return runner

    yield make
    if channel.publisher.cache_info().currsize:
        channel.publisher().stop()
        channel.publisher.cache_clear()


async def told(request: str) -> AsyncIterator[Told]:
    async with Puller() as puller, aclosing(puller.frames(channel.reference(request, "thinker"))) as frames:
        async for frame in frames:
            yield read(frame)


async def test_a_chunked_prompt_beside_others_then_text(made: Any) -> None:
    runner = made()
    runner.add("other", [3, 4, SOUND])
    runner.add("r", PROMPT, **{ARGUMENT: "key"})
    for rows in ((("other", 0, 3), ("r", 0, 2)), (("r", 2, 2), ("other", 3, 1))):
        assert runner.step(*rows).ndim == 1
    runner.requests["r"].known += [30, 31]
    runner.step(("r", 4, 1))
    runner._on_request_state_removed("r", None)
    frames = [frame async for frame in told("key")]
    assert [frame.ids for frame in frames] == [(1, SOUND), (SOUND, 2), (30,)]
    assert [frame.media_at for frame in frames] == [(1,), (2,), ()]
    rows = [channel.to_tensor(frame.rows[MEDIA])[:, 0].tolist() for frame in frames[:2]]
    assert rows == [[100.0 * LAYER + 1], [100.0 * LAYER + 2]]
    assert runner.body.asked == [(LAYER,), (LAYER,), ()]


async def test_a_request_that_nobody_listens_to_costs_nothing(made: Any) -> None:
    runner = made()
    runner.add("r", PROMPT)
    runner.step(("r", 0, 4))
    assert runner.body.asked == [()]
    assert channel.publisher().held() == (0, 0)


async def test_every_row_where_all_is_asked_for(made: Any) -> None:
    runner = made("all")
    runner.add("r", PROMPT, **{ARGUMENT: "key"})
    runner.step(("r", 3, 1))
    runner._on_request_state_removed("r", None)
    [frame] = [frame async for frame in told("key")]
    assert frame.ids == tuple(PROMPT)
    rows = {name: channel.to_tensor(frame.rows[name])[:, 0].tolist() for name in (EMBEDDING, HIDDEN)}
    assert rows == {EMBEDDING: [3.0], HIDDEN: [100.0 * LAYER + 3]}


def test_what_cannot_be_told_rightly_is_refused(made: Any) -> None:
    with pytest.raises(RuntimeUnsupported, match="--no-async-scheduling"):
        made(async_scheduling=True)
    with pytest.raises(ConfigurationError, match="expected media or all"):
        made("some")
