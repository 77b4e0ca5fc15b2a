"""One engine, as it answers by itself.

| asked | for |
| --- | --- |
| `GET /health` | whether it answers at all |
| `GET /v1/models` | names, `max_model_len` |
| `GET /version` | vLLM's version, where there is one |
| `GET /duet/identity` | connector, role, revision, voices, where the engine tells: stock vLLM does not |
| what the connector looks up (`Connector.lookup`) | what a handoff must name, for connectors that need it |
| `POST /v1/completions`, one token | the probe text as tokens, and whether usage has its details |

A Talker and a Code2Wav are not asked for the last two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError, EngineBroken, EngineError
from gateway.transport.port import Deadlines, EngineClient

PROBE_TEXT = (
    "The quick brown fox jumps over 1,234.50 lazy dogs.\n\tdef f(x): return x**2  # naïve café\n"
    "Съешь же ещё этих мягких булок. 我能吞下玻璃而不伤身体。いろはにほへと 한국어 "
    "שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดี Ωμέγα 👩‍👩‍👧 ﬁn"
)
"""Several scripts, numbers, code, joined emoji: what tokenizers of different models cut differently."""
IDENTITY = "/duet/identity"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Model:
    """`max_model_len` in tokens, None if it is not told; `root` is the folder or name that it was loaded from."""

    max_model_len: int | None
    root: str | None


@dataclass(frozen=True, slots=True)
class EngineLook:
    """What was seen. `down` is why nothing else could be; `refused` why the probe text got no answer; `lookup_failed`
    why what the connector must know was not learnt. `tokens` are the probe text's, None if they were not returned;
    `details` is whether usage has `prompt_tokens_details`. `engine` has the facts that were learnt."""

    engine: Engine
    down: str | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    version: str | None = None
    identity: Mapping[str, Any] | None = None
    lookup_failed: str | None = None
    refused: str | None = None
    tokens: tuple[int, ...] | None = None
    details: bool = False

    @property
    def up(self) -> bool:
        return self.down is None

    @property
    def generates(self) -> bool:
        """Whether a request may be sent through it."""
        return self.up and self.refused is None and self.lookup_failed is None

    def told(self, name: str) -> str | None:
        """A string of its identity."""
        value = (self.identity or {}).get(name)
        return value if isinstance(value, str) else None


class Asker:
    """Asks one engine. `timeout` bounds each question, in seconds."""

    def __init__(self, client: EngineClient, kv: Connector | None, timeout: float) -> None:
        self._client = client
        self._kv = kv
        self._timeout = timeout

    async def look(self, engine: Engine) -> EngineLook:
        """Never raises for what the engine does."""
        try:
            await self._expect_ok(engine, "/health")
            listed = _decoded(engine, "/v1/models", await self._expect_ok(engine, "/v1/models"), _Models)
            if not listed.data:
                raise EngineBroken(f"engine {engine.id} serves no model", engine=engine.id)
        except EngineError as e:
            return EngineLook(engine, down=e.message)
        found = EngineLook(
            engine,
            models={m.id: Model(m.max_model_len, m.root) for m in listed.data},
            version=_text(await self._optional(engine, "/version"), "version"),
            identity=await self._optional(engine, IDENTITY),
        )
        return await self._probed(await self._learnt(found)) if engine.role.thinks else found

    async def _learnt(self, found: EngineLook) -> EngineLook:
        """What the gateway's own health check would learn."""
        engine = found.engine
        if self._kv is None or not engine.role.serves(Role.PREFILL):
            return found
        try:
            lookup = self._kv.lookup(engine)
            if lookup is None:
                return found
            body = await self._expect_ok(Engine(engine.id, lookup.base, engine.role), lookup.path)
            learnt = self._kv.learn(engine, body)
        except (EngineError, ConfigurationError) as e:
            return replace(found, lookup_failed=e.message)
        return replace(found, engine=replace(engine, facts={**engine.facts, **learnt}))

    async def _probed(self, found: EngineLook) -> EngineLook:
        body = {
            "model": next(iter(found.models)),
            "prompt": PROBE_TEXT,
            "max_tokens": 1,
            "temperature": 0,
            "return_token_ids": True,
        }
        try:
            status, reply = await self.post(found.engine, "/v1/completions", msgspec.json.encode(body))
            if status != 200:
                return replace(found, refused=f"{status}: {words(reply)}")
            answer = _decoded(found.engine, "/v1/completions", reply, _Answer)
        except EngineError as e:
            return replace(found, refused=e.message)
        ids = answer.choices[0].prompt_token_ids if answer.choices else None
        details = answer.usage is not None and answer.usage.prompt_tokens_details is not None
        return replace(found, tokens=None if ids is None else tuple(ids), details=details)

    async def post(
        self, engine: Engine, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body. Raises EngineError."""
        bounds = Deadlines(connect=self._timeout, headers=self._timeout, idle=self._timeout)
        stream = await self._client.post(engine, path, body, headers=headers or {}, deadlines=bounds)
        try:
            return stream.status, await stream.read()
        finally:
            stream.close()

    async def get(self, engine: Engine, path: str) -> tuple[int, bytes]:
        """Status and body. Raises EngineError."""
        reply = await self._client.get(engine, path, timeout=self._timeout)
        return reply.status, reply.body

    async def _expect_ok(self, engine: Engine, path: str) -> bytes:
        status, body = await self.get(engine, path)
        if status != 200:
            hint = "; is --engine-api-key (DUET_ENGINE_API_KEY) its key?" if status in (401, 403) else ""
            raise EngineBroken(
                f"engine {engine.id} answered {path} with {status}; expected 200{hint}", engine=engine.id
            )
        return body

    async def _optional(self, engine: Engine, path: str) -> Mapping[str, Any] | None:
        """A JSON object that an engine need not have; None where it has none."""
        try:
            status, body = await self.get(engine, path)
            found = msgspec.json.decode(body) if status == 200 else None
        except (EngineError, msgspec.DecodeError):
            return None
        return found if isinstance(found, dict) else None


def words(body: bytes) -> str:
    """An error's message out of an engine's reply, or its beginning."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error.message
    except msgspec.DecodeError:
        return body[:200].decode("utf-8", "replace").strip() or "no body"


def _text(found: Mapping[str, Any] | None, name: str) -> str | None:
    value = (found or {}).get(name)
    return value if isinstance(value, str) else None


def _decoded(engine: Engine, path: str, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as e:
        raise EngineBroken(f"engine {engine.id} answered {path} with something else: {e}", engine=engine.id) from None


class _Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


class _Choice(msgspec.Struct):
    prompt_token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: dict[str, Any] | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error
