"""vLLM's ExampleConnector: KV through files that both engines can read, found by the prompt's tokens.

Nothing is handed over: prefill writes the prompt's full blocks, decode finds them by hash, and computes the rest of
the prompt itself. It is slow and never cleans up; it shows that a connector may need no metadata at all.

Stock vLLM 0.32 dies of some prompts with it, on either side; `engines/compat/example.py` is it without that.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from common.connectors.base import NO_LENGTH, CancelPolicy, Connector, Handoff, HandoffContext, Order, PrefillReply
from common.engine import Role
from common.errors import HandoffInvalid

DAY = 86400.0
HEALED = "engines.compat.example"
"""The module that an engine takes it from; vLLM's own class of that name does less well."""


class ExampleConnector(Connector):
    name = "ExampleConnector"
    aliases = ("example",)
    order = Order.SEQUENTIAL
    cancel = CancelPolicy.LEASE
    carries = False

    @property
    def default_lease(self) -> float:
        """A day. Files stay until somebody removes them; no record needs to remember them for longer."""
        return DAY

    def prefill_params(self, ctx: HandoffContext) -> None:
        return None

    def handoff(self, ctx: HandoffContext, reply: PrefillReply | None) -> Handoff:
        """Null metadata is how this connector works; whatever else prefill says is not for it.

        Raises HandoffInvalid for a prompt of one token, or of nobody knows how many: a stock decode engine would die
        of one.
        """
        if reply is not None and reply.prompt_tokens is None:
            raise HandoffInvalid(f"{NO_LENGTH}; {self.name} needs a prompt of 2 tokens or more", engine=ctx.prefill.id)
        if reply is not None and reply.prompt_tokens == 1:
            raise HandoffInvalid(
                f"the prompt has 1 token; {self.name} needs 2 or more: decode would die of it", engine=ctx.decode.id
            )
        since = ctx.now if reply is None else reply.received_at
        return Handoff(self.name, {}, None, since + self.lease * 0.9)

    def decode_params(self, ctx: HandoffContext, handoff: Handoff) -> None:
        return None

    def engine_config(self, role: Role, *, device: str) -> dict[str, Any]:
        roles = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer", Role.BOTH: "kv_both"}
        storage = Path(tempfile.gettempdir()) / "duet-example-kv"
        return {
            "kv_connector": self.name,
            "kv_connector_module_path": HEALED,
            "kv_role": roles[role],
            "kv_connector_extra_config": {"shared_storage_path": str(storage)},
        }
