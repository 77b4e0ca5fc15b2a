"""Hooks that do next to nothing, put onto a loaded tiny model: it then takes part in the phase contract, and its
answers stay what they are.

They make the rows that the model would make of its ids itself, in its forward pass. That is work which moves, neither
the runner's nor new: `embed_once` does it as the forward pass does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def attach(runner: Any, kind: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Gives the runner's model hooks of that kind, each put into `around`, and has the runner look for them.

    Kinds are `none`, `batched`, `scalar` and `async`.
    """
    import torch

    model = runner.model
    embed = model.model.embed_tokens

    def preprocess(input_ids: Tensor, input_embeds: Tensor | None = None, **info: Any) -> tuple[Tensor, Tensor, Any]:
        updates = {} if info["_omni_is_prefill"] else {"mtp_inputs": (info["hidden_states"]["last"], zero)}
        return input_ids, embed(input_ids), updates

    def decode_batch(*, input_ids: Tensor, req_infos: list[Any]) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Any]]:
        hidden = torch.cat([info["hidden_states"]["last"] for info in req_infos])
        return input_ids, embed(input_ids), hidden, zero.expand_as(hidden), [{}] * len(req_infos)

    def talker_mtp(ids: Tensor, embeds: Tensor, last_hidden: Tensor, text_step: Tensor) -> tuple[Tensor, Tensor]:
        return embeds, ids[:, None].expand(-1, 16)

    def postprocess(hidden: Tensor, multimodal_outputs: Any = None, **_: Any) -> dict[str, Any]:
        return {"hidden_states": {"last": hidden[-1:]}}

    if kind == "none":
        model.has_preprocess = False
        runner.attach_model()
        return
    zero = torch.zeros(1, embed.weight.shape[1])
    model.has_preprocess = model.has_postprocess = True
    model.gpu_resident_buffer_keys = {("hidden_states", "last")}
    for hook in (preprocess, postprocess, talker_mtp):
        setattr(model, hook.__name__, around(hook))
    model.preprocess_decode_batch = around(decode_batch) if kind in ("batched", "async") else None
    runner.attach_model()
    runner.kept.rewinds = kind == "async"


def embed_once(runner: Any, count: int) -> None:
    """The embeddings of `count` ids, in one look-up."""
    import torch

    with torch.inference_mode():
        runner.model.model.embed_tokens(runner.input_ids.gpu[:count])
