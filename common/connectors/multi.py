"""vLLM's MultiConnector: several connectors in one engine, asked in order.

One of them may carry handoffs; the others (files, offloading) need no word from a gateway. So for a gateway it is that
one under another name, and for an engine a list: `Multi(NixlConnector, ExampleConnector)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common.connectors.base import (
    Connector,
    Handoff,
    HandoffContext,
    Lookup,
    Params,
    PrefillReply,
)
from common.engine import Engine, Role
from common.errors import ConfigurationError


class MultiConnector(Connector):
    name = "MultiConnector"
    aliases = ("multi",)

    def __init__(self, parts: Sequence[Connector] = (), *, lease: float | None = None) -> None:
        """Raises ConfigurationError without parts, and for two parts that both want to carry the handoff."""
        carriers = [part for part in parts if part.carries]
        if not parts or len(carriers) > 1:
            named = ", ".join(part.name for part in parts) or "none"
            raise ConfigurationError(
                f"{self.name} of {named}: expected one connector or more, at most one of which carries handoffs"
            )
        self.parts = tuple(parts)
        self._carrier = carriers[0] if carriers else parts[0]
        self.carries = self._carrier.carries
        self.order = self._carrier.order
        self.cancel = self._carrier.cancel
        self.one_request_id = self._carrier.one_request_id
        self.options = self._carrier.options
        super().__init__(lease=lease)

    @property
    def default_lease(self) -> float:
        """The carrier's."""
        return self._carrier.lease

    def prefill_params(self, ctx: HandoffContext) -> Params | None:
        return self._carrier.prefill_params(ctx)

    def prefill_headers(self, ctx: HandoffContext) -> Mapping[str, str]:
        return self._carrier.prefill_headers(ctx)

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        made = self._carrier.handoff(ctx, reply)
        return Handoff(self.name, made.params, made.prompt_tokens, made.expires_at)

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> Params | None:
        return self._carrier.decode_params(ctx, handoff)

    def identity(self, handoff: Handoff) -> str | None:
        return self._carrier.identity(handoff)

    def lookup(self, prefill: Engine) -> Lookup | None:
        return self._carrier.lookup(prefill)

    def learn(self, prefill: Engine, body: bytes) -> Mapping[str, str]:
        return self._carrier.learn(prefill, body)

    def url_options(self, *, side_port: int) -> Mapping[str, str]:
        return self._carrier.url_options(side_port=side_port)

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        parts = [part.engine_config(role, device=device) for part in self.parts]
        kv_role = parts[0]["kv_role"]
        return {
            "kv_connector": self.name,
            "kv_role": kv_role,
            "kv_connector_extra_config": {"connectors": parts},
        }

    def engine_env(self, *, host: str, side_port: int) -> dict[str, str]:
        env: dict[str, str] = {}
        for part in self.parts:
            env |= part.engine_env(host=host, side_port=side_port)
        return env
