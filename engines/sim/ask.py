"""A request body as an engine understands it, or refuses it: vLLM's checks, in its order and its words.

Source: vLLM 0.32, `entrypoints/openai/*/protocol.py`, `renderers/`, `sampling_params.py`; the wording was seen on real
engines. A field that changes an answer and is not imitated here is refused with 501: never silently left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from engines.sim import words

Fields = Mapping[str, Any]

DEFAULT_COMPLETION_TOKENS = 16
MAX_N = 16384
"""vLLM's `VLLM_MAX_N_SEQUENCES`."""

NOT_IMITATED = (
    "logprobs",
    "prompt_logprobs",
    "use_beam_search",
    "prompt_embeds",
    "truncate_prompt_tokens",
    "logit_bias",
    "allowed_token_ids",
    "structured_outputs",
)


class SimRefused(Exception):
    """A request that vLLM refuses, in its words."""

    def __init__(self, status: int, message: str, type_: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.type, self.param = status, message, type_, param


@dataclass(frozen=True, slots=True)
class Ask:
    """One accepted request. `limits` is the most tokens of an answer to each of `prompts`."""

    chat: bool
    prompts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    n: int
    seed: int
    min_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    echo: bool
    kv: Fields


class _StreamOptions(BaseModel):
    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: int | None = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = None
    echo: bool | None = False
    kv_transfer_params: dict[str, Any] | None = None


class _ChatBody(_Body):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


class _TextBody(_Body):
    prompt: list[NonNegativeInt] | list[list[NonNegativeInt]] | str | list[str] | None = None


def read(chat: bool, raw: bytes, *, model: str, max_model_len: int, rotated: int = 0) -> Ask:
    """`rotated` is the tokenizer's, for prompts that are text. Raises SimRefused."""
    fields = _object(raw)
    body: _ChatBody | _TextBody = _validated(_ChatBody if chat else _TextBody, fields)
    if body.model and body.model != model:
        message = f"The model `{body.model}` does not exist. Valid aliases: {model}."
        raise SimRefused(404, message, "NotFoundError", "model")
    asked = _asked_tokens(body, max_model_len)
    kv = dict(body.kv_transfer_params or {})
    prompts = _chat_prompt(body, fields, kv, max_model_len) if isinstance(body, _ChatBody) else _prompts(body, rotated)
    for prompt in prompts:
        _check_prompt(prompt, max_model_len)
    limits = tuple(min(max_model_len - len(p), max_model_len if asked is None else asked) for p in prompts)
    _check_sampling(body, limits)
    options = body.stream_options or _StreamOptions(include_usage=False)
    stop = body.stop or ()
    return Ask(
        chat=chat,
        prompts=prompts,
        limits=limits,
        n=1 if body.n is None else body.n,
        seed=0 if body.seed is None or body.temperature == 0 else body.seed,
        min_tokens=body.min_tokens,
        ignore_eos=body.ignore_eos,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
        return_token_ids=bool(body.return_token_ids),
        echo=bool(body.echo),
        kv=kv,
    )


def _asked_tokens(body: _ChatBody | _TextBody, max_model_len: int) -> int | None:
    """How many tokens at most; None for as many as there is room for."""
    asked = body.max_tokens
    if isinstance(body, _ChatBody):
        asked = asked if body.max_completion_tokens is None else body.max_completion_tokens
    elif asked is None:
        asked = DEFAULT_COMPLETION_TOKENS
    if asked is not None and asked > max_model_len:
        raise _wrong(
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            "max_tokens",
            asked,
        )
    return asked


def out_of_vocabulary(prompt: Sequence[int]) -> int | None:
    """The first id that is no token's. In a prompt the engine looks for it, when a stream has already begun."""
    return next((i for i in prompt if i >= words.VOCABULARY), None)


def _wrong(message: str, param: str, value: Any = None) -> SimRefused:
    what = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return SimRefused(400, f"{message} ({what})", param=param)


def _invalid(loc: str, error: Mapping[str, Any]) -> SimRefused:
    told = {**error, "loc": loc, "input": _summary(error.get("input"))}
    return SimRefused(400, f"1 validation error:\n  {told}", "Bad Request", loc)


def _summary(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    return str(value)


def _object(raw: bytes) -> dict[str, Any]:
    if not raw:
        raise _invalid("body", {"type": "missing", "loc": "", "msg": "Field required", "input": None})
    try:
        found = json.loads(raw)
    except json.JSONDecodeError as e:
        told = {"type": "json_invalid", "loc": "", "msg": "JSON decode error", "input": {}, "ctx": {"error": e.msg}}
        raise _invalid(f"body.{e.pos}", told) from None
    except UnicodeDecodeError:
        raise SimRefused(400, "There was an error parsing the body", "") from None
    if not isinstance(found, dict):
        told = {
            "type": "model_attributes_type",
            "loc": "",
            "msg": "Input should be a valid dictionary or object to extract fields from",
            "input": found,
        }
        raise _invalid("body", told)
    return found


def _validated(kind: type[_ChatBody] | type[_TextBody], fields: Fields) -> _ChatBody | _TextBody:
    if fields.get("stream_options") and not fields.get("stream"):
        raise _wrong("Stream options can only be defined when `stream=True`.", "stream_options")
    if kind is _TextBody and fields.get("prompt_embeds") is None and fields.get("prompt") in (None, ""):
        raise _wrong("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if kind is _ChatBody and fields.get("echo"):
        raise SimRefused(501, "the simulated engine does not imitate echo in chats", "NotImplementedError", "echo")
    for name in NOT_IMITATED:
        if fields.get(name):
            raise SimRefused(501, f"the simulated engine does not imitate {name}", "NotImplementedError", name)
    try:
        return kind.model_validate(fields)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False)[0]
        raise _invalid(f"body.{first['loc'][0]}", {**first}) from None


def _chat_prompt(body: _ChatBody, fields: Fields, kv: dict[str, Any], room: int) -> tuple[tuple[int, ...], ...]:
    """The ids that the handoff brings in place of the messages, else the messages. Media must be read there."""
    choice = "auto" if body.tools and "tool_choice" not in fields else body.tool_choice
    if choice == "auto":
        raise SimRefused(400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    if not body.messages:
        raise SimRefused(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    given = kv.pop("prompt_token_ids", None)
    if given is None or _has_media(body.messages):
        return (tuple(words.render(fields)),)
    param = "kv_transfer_params.prompt_token_ids"
    if not isinstance(given, list) or not given or any(type(i) is not int or i < 0 for i in given):
        name = "`kv_transfer_params['prompt_token_ids']`"
        raise _wrong(f"{name} must be a non-empty list of non-negative integers.", param)
    beyond = out_of_vocabulary(given)
    if beyond is not None:
        raise _wrong(f"Token id {beyond} is out of vocabulary", param)
    if len(given) > room:
        raise SimRefused(400, f"Input length ({len(given)}) exceeds model's maximum context length ({room}).")
    return (tuple(given),)


def _has_media(messages: list[dict[str, Any]]) -> bool:
    parts = [part for m in messages if isinstance(m.get("content"), list) for part in m["content"]]
    return any(isinstance(part, dict) and part.get("type", "text") != "text" for part in parts)


def _prompts(body: _TextBody, rotated: int) -> tuple[tuple[int, ...], ...]:
    """Ids in the handoff are not looked for: completions have their prompt."""
    match body.prompt:
        case str(text):
            return (tuple(words.encode(text, rotated=rotated)),)
        case [int(), *_] as ids:
            return (tuple(int(i) for i in ids),)  # type: ignore[arg-type]
        case []:
            raise SimRefused(400, "You must pass at least one prompt")
        case [_, *_] as several:
            return tuple(
                tuple(words.encode(p, rotated=rotated)) if isinstance(p, str) else tuple(p)  # type: ignore[arg-type]
                for p in several
            )
    raise _wrong("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")


def _check_prompt(prompt: tuple[int, ...], room: int) -> None:
    if len(prompt) > room:
        about = "at least " if len(prompt) == room + 1 else ""
        raise _wrong(
            f"This model's maximum context length is {room} tokens. However, your prompt contains "
            f"{about}{len(prompt)} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt.",
            "input_tokens",
            len(prompt),
        )


def _check_sampling(body: _ChatBody | _TextBody, limits: tuple[int, ...]) -> None:
    least = min(limits, default=1)
    if body.n is not None and body.n < 1:
        raise SimRefused(400, f"n must be at least 1, got {body.n}.")
    if body.n is not None and body.n > MAX_N:
        more = "To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
        raise SimRefused(400, f"n must be at most {MAX_N}, got {body.n}. {more}")
    if body.temperature is not None and body.temperature < 0:
        raise _wrong(f"temperature must be non-negative, got {body.temperature}.", "temperature", body.temperature)
    if isinstance(body.stop, list) and "" in body.stop:
        raise SimRefused(400, "stop cannot contain an empty string.")
    if least < 1:
        raise _wrong(f"max_tokens must be at least 1, got {least}.", "max_tokens", least)
    if body.min_tokens > least:
        message = f"min_tokens must be less than or equal to max_tokens={least}, got {body.min_tokens}."
        raise SimRefused(400, message)
    if body.temperature == 0 and body.n is not None and body.n > 1:
        raise SimRefused(400, f"n must be 1 when using greedy sampling, got {body.n}.")
