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
| `postprocess_uses_hidden_states` | false: it is given the whole step's hidden states, not its row's |
| `postprocess_uses_req_infos` | false: it is given no `info` |
| `on_requests_finished(req_ids)` | optional: their state is dropped now |
| `on_tokens_taken_back(req_id, position)` | optional, ours: what decode fed from there on does not count |
| `talker_mtp_output_key` | where a request's newest codes are kept: `("codes", "audio")` |
| `talker_mtp_validity_key` | where a true tensor is kept beside them; none |
| `talker_mtp_accepts_req_infos` | MTP is given `req_ids` and `req_infos` too |
| `talker_mtp_accepts_per_row_generators` | MTP is given `generators` for a batch; else a seeded row goes alone |
| `mtp_hidden_size` | width of `last_hidden` and `text_step`; the text config's hidden size |
| `rows_follow_from_ids` | true: equal ids are equal rows, prompt's and decode's, so the prefix cache may be on |
| `gpu_resident_buffer_keys` | nested keys whose tensors stay on the device; others are kept in host memory |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from engines.runner.errors import RuntimeUnsupported

Hook = Callable[..., Any]
NestedKey = tuple[str, str]

REFUSED = (
    "enable_update_additional_information",
    "flush_pending_metadata",
    "have_multimodal_outputs",
    "logitsprocs_need_output_token_ids",
    "make_omni_output",
    "post_sample_talker_mtp",
    "prefer_model_sampler",
    "prepare_runner_inputs",
    "replace_runtime_additional_information",
    "requires_request_ids",
    "requires_request_sample_eligibility",
    "set_batch_req_ids",
    "set_runner_assisted_full_attention_metadata_context",
    "supports_omni_decode_step_metadata",
    "supports_omni_query_start_loc",
    "supports_sampled_token_ids_cpu_override",
)
"""What vLLM-Omni 0.30's runners do besides, for models that say so: not part of the contract, and not done here. A
model that counts on one of them would be wrong without an error."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """A model's hooks; None for one that it has not."""

    model: str
    preprocess: Hook
    decode_batch: Hook | None
    """`preprocess_decode_batch(*, input_ids [n], req_infos)` -> ids `[n]`, embeddings `[n, hidden]`, and n updates;
    beside `talker_mtp` also last hidden `[n, mtp]` and text step `[n, mtp]`, before the updates."""
    batch: Hook | None
    mtp: Hook | None
    mtp_options: frozenset[str] | None
    """Keyword arguments that MTP knows; None for all."""
    mtp_width: int | None
    """None: the text config's hidden size."""
    mtp_takes_infos: bool
    mtp_takes_generators: bool
    codes_key: NestedKey
    validity_key: NestedKey | None
    postprocess: Hook | None
    postprocess_of_row: bool
    postprocess_takes_info: bool
    finished: Hook | None
    taken_back: Hook | None
    cacheable: bool
    """`rows_follow_from_ids`."""
    on_device: frozenset[NestedKey]

    @classmethod
    def of(cls, model: Any) -> Hooks | None:
        """None for a model that takes no part. Raises RuntimeUnsupported for hooks that are not what they must be, and
        for a model that counts on more than the contract."""
        if not getattr(model, "has_preprocess", False):
            return None
        name = type(model).__name__
        if more := [attribute for attribute in REFUSED if getattr(model, attribute, None)]:
            raise RuntimeUnsupported(
                f"model {name} has {', '.join(more)}; expected none of them: vLLM-Omni's runners look at them, "
                "the phase contract has no such thing"
            )
        mtp = _hook(model, name, "talker_mtp")
        found = cls(
            model=name,
            preprocess=_needed(model, name, "preprocess"),
            decode_batch=_hook(model, name, "preprocess_decode_batch"),
            batch=_hook(model, name, "preprocess_batch"),
            mtp=mtp,
            mtp_options=_options(name, mtp) if mtp else None,
            mtp_width=_width(model, name),
            mtp_takes_infos=_flag(model, "talker_mtp_accepts_req_infos", default=False),
            mtp_takes_generators=_flag(model, "talker_mtp_accepts_per_row_generators", default=False),
            codes_key=_nested_key(model, name, "talker_mtp_output_key", ("codes", "audio")),
            validity_key=_optional_key(model, name, "talker_mtp_validity_key"),
            postprocess=_needed(model, name, "postprocess") if _flag(model, "has_postprocess", default=False) else None,
            postprocess_of_row=_flag(model, "postprocess_uses_hidden_states", default=True),
            postprocess_takes_info=_flag(model, "postprocess_uses_req_infos", default=True),
            finished=_hook(model, name, "on_requests_finished"),
            taken_back=_hook(model, name, "on_tokens_taken_back"),
            cacheable=_flag(model, "rows_follow_from_ids", default=False),
            on_device=_on_device(model, name),
        )
        found._check_options()
        return found

    def mtp_knows(self, option: str) -> bool:
        """Whether `talker_mtp` has a parameter of that name."""
        return self.mtp_options is None or option in self.mtp_options

    def _check_options(self) -> None:
        """What a model says that its `talker_mtp` takes, it must take."""
        wanted = {
            "talker_mtp_accepts_req_infos": ("req_ids", "req_infos") if self.mtp_takes_infos else (),
            "talker_mtp_accepts_per_row_generators": ("generators",) if self.mtp_takes_generators else (),
        }
        for attribute, options in wanted.items():
            if self.mtp and (lacking := [option for option in options if not self.mtp_knows(option)]):
                raise RuntimeUnsupported(
                    f"model {self.model}: {attribute} is set, and talker_mtp has no {', '.join(lacking)}; expected "
                    "parameters of these names"
                )


def _flag(model: Any, attribute: str, *, default: bool) -> bool:
    return bool(getattr(model, attribute, default))


def _hook(model: Any, name: str, attribute: str) -> Hook | None:
    found = getattr(model, attribute, None)
    if found is not None and not callable(found):
        raise RuntimeUnsupported(f"model {name}: {attribute} is {found!r}; expected a method or None")
    return found


def _needed(model: Any, name: str, attribute: str) -> Hook:
    found = _hook(model, name, attribute)
    if found is None:
        raise RuntimeUnsupported(f"model {name}: has_{attribute} is set, {attribute} is missing; expected a method")
    return found


def _options(name: str, mtp: Hook) -> frozenset[str] | None:
    """A module's are those of its `forward`: its `__call__` takes anything, and hands it on."""
    plain = getattr(mtp, "_orig_mod", mtp)  # what torch.compile made its module of
    hook = plain.forward if isinstance(plain, nn.Module) else plain
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError) as e:
        raise RuntimeUnsupported(f"model {name}: talker_mtp's parameters are not known: {e}") from e
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def _width(model: Any, name: str) -> int | None:
    match getattr(model, "mtp_hidden_size", None):
        case None | 0:
            return None
        case int() as width if width > 0 and not isinstance(width, bool):
            return width
        case other:
            raise RuntimeUnsupported(f"model {name}: mtp_hidden_size is {other!r}; expected a whole number above 0")


def _on_device(model: Any, name: str) -> frozenset[NestedKey]:
    found = getattr(model, "gpu_resident_buffer_keys", ())
    keys = list(found) if isinstance(found, Iterable) else [found]
    if not all(_is_nested_key(key) for key in keys):
        raise RuntimeUnsupported(
            f"model {name}: gpu_resident_buffer_keys is {found!r}; expected tuples of two strings, in a set"
        )
    return frozenset(keys)


def _is_nested_key(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and all(isinstance(part, str) for part in key)


def _optional_key(model: Any, name: str, attribute: str) -> NestedKey | None:
    return None if getattr(model, attribute, None) is None else _nested_key(model, name, attribute)


def _nested_key(model: Any, name: str, attribute: str, default: NestedKey | None = None) -> NestedKey:
    match getattr(model, attribute, default):
        case (str() as outer, str() as inner):
            return outer, inner
        case other:
            raise RuntimeUnsupported(f"model {name}: {attribute} is {other!r}; expected two strings")
