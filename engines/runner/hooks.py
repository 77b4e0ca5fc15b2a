"""What a model brings to the contract, looked up once when it is loaded.

The names are vLLM-Omni's, so that a model written for its contract runs here as it is.

| a model's attribute | meaning |
| --- | --- |
| `has_preprocess` | it takes part; without it nothing here is done |
| `preprocess(input_ids, input_embeds, **info)` | one row: ids `[span]` -> ids, embeddings `[span, hidden]`, updates |
| `preprocess_decode_batch(*, input_ids, req_infos)` | optional: adjacent decode rows at once, see `decode_batch` |
| `preprocess_batch(*, req_ids, model_intermediate_buffer, device)` | optional: before a step's rows, without phases |
| `talker_mtp(ids, embeds, last_hidden, text_step, **options)` | optional: what MTP makes of all decode rows of a step |
| `has_postprocess`, `postprocess(hidden, multimodal_outputs, **info)` | optional: a row's hidden states -> updates |
| `on_requests_finished(req_ids)` | optional: their state is dropped now |
| `talker_mtp_output_key` | where a request's newest codes are kept: `("codes", "audio")` |
| `talker_mtp_accepts_req_infos` | MTP is given `req_ids` and `req_infos` too |
| `talker_mtp_accepts_per_row_generators` | MTP is given `generators` for a batch; else a seeded row goes alone |
| `mtp_hidden_size` | width of `last_hidden` and `text_step`; the text config's hidden size |
| `gpu_resident_buffer_keys` | nested keys whose tensors stay on the device; others are kept in host memory |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engines.runner.errors import RuntimeUnsupported

Hook = Callable[..., Any]
NestedKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Hooks:
    """A model's hooks; None for one that it has not."""

    model: str
    preprocess: Hook
    decode_batch: Hook | None
    """`preprocess_decode_batch(*, input_ids [n], req_infos)` -> ids `[n]`, embeddings `[n, hidden]`, last hidden
    `[n, mtp]`, text step `[n, mtp]`, n updates. Only beside `talker_mtp`."""
    batch: Hook | None
    mtp: Hook | None
    mtp_options: frozenset[str] | None
    """Keyword arguments that MTP knows; None for all."""
    mtp_takes_infos: bool
    mtp_takes_generators: bool
    codes_key: NestedKey
    postprocess: Hook | None
    finished: Hook | None
    on_device: frozenset[NestedKey]

    @classmethod
    def of(cls, model: Any) -> Hooks | None:
        """None for a model that takes no part. Raises RuntimeUnsupported for hooks that are not what they must be."""
        if not getattr(model, "has_preprocess", False):
            return None
        name = type(model).__name__
        mtp = _hook(model, name, "talker_mtp")
        preprocess = _hook(model, name, "preprocess")
        if preprocess is None:
            raise RuntimeUnsupported(f"model {name}: has_preprocess is set, preprocess is missing; expected a method")
        postprocess = _hook(model, name, "postprocess") if getattr(model, "has_postprocess", False) else None
        return cls(
            model=name,
            preprocess=preprocess,
            decode_batch=_hook(model, name, "preprocess_decode_batch") if mtp else None,
            batch=_hook(model, name, "preprocess_batch"),
            mtp=mtp,
            mtp_options=_options(mtp) if mtp else None,
            mtp_takes_infos=bool(getattr(model, "talker_mtp_accepts_req_infos", False)),
            mtp_takes_generators=bool(getattr(model, "talker_mtp_accepts_per_row_generators", False)),
            codes_key=_codes_key(model, name),
            postprocess=postprocess,
            finished=_hook(model, name, "on_requests_finished"),
            on_device=frozenset(getattr(model, "gpu_resident_buffer_keys", ())),
        )


def _hook(model: Any, name: str, attribute: str) -> Hook | None:
    found = getattr(model, attribute, None)
    if found is not None and not callable(found):
        raise RuntimeUnsupported(f"model {name}: {attribute} is {found!r}; expected a method or None")
    return found


def _options(mtp: Hook) -> frozenset[str] | None:
    parameters = inspect.signature(mtp).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def _codes_key(model: Any, name: str) -> NestedKey:
    match getattr(model, "talker_mtp_output_key", ("codes", "audio")):
        case (str() as outer, str() as inner):
            return outer, inner
        case other:
            raise RuntimeUnsupported(f"model {name}: talker_mtp_output_key is {other!r}; expected two strings")
