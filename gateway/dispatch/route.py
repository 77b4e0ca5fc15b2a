"""Which engines an attempt goes to."""

from __future__ import annotations

from dataclasses import dataclass

from common.connectors.base import HandoffContext
from common.engine import Engine, Role
from common.errors import BadRequest, ModelNotFound, NoRoutableEngine
from common.ids import leg_id
from gateway.dispatch.policy import NO_PREFILL, Policies, Policy
from gateway.fleet import Fleet
from gateway.routing import Picker, Wish
from gateway.wire import ClientRequest, check_budget, check_fields, unsplit_reason


@dataclass(frozen=True, slots=True)
class Route:
    """One attempt's engines. `prefill` is None, and `unsplit` says why, where decode runs the request whole."""

    attempt: int
    decode: Engine
    prefill: Engine | None = None
    unsplit: str | None = None

    def context(self, request_id: str, now: float) -> HandoffContext | None:
        """None where nothing is handed over."""
        if self.prefill is None:
            return None
        return HandoffContext(leg_id(request_id, self.attempt, "kv"), self.prefill, self.decode, now)


class Router:
    def __init__(self, fleet: Fleet, picker: Picker, policies: Policies, *, refuse_unsplit: bool) -> None:
        self._fleet = fleet
        self._picker = picker
        self._policies = policies
        self._refuse_unsplit = refuse_unsplit

    def first(self, request: ClientRequest) -> Route:
        """Raises ModelNotFound, BadRequest or NoRoutableEngine; no engine was called then."""
        length = self._length_of(request.model)
        check_fields(request)
        check_budget(request, length)
        reason = unsplit_reason(request)
        if reason is None:
            return self._split_or_local(request)
        if self._refuse_unsplit:
            raise BadRequest(
                f"this request cannot be split into prefill and decode ({reason}), and this gateway is set to refuse "
                "such requests (DUET_UNSPLIT=refuse)"
            )
        return self.whole(request, reason)

    def split(self, request: ClientRequest, attempt: int = 1, tried: frozenset[str] = frozenset()) -> Route:
        """Raises NoRoutableEngine."""
        candidates = self._fleet.candidates()
        heard = request.speaks
        prefill = self._picker.pick(candidates, Wish(Role.PREFILL, request.model, tried=tried, heard=heard)).engine
        wish = Wish(Role.DECODE, request.model, other_than=prefill.id, tried=tried, heard=heard)
        return Route(attempt, self._picker.pick(candidates, wish).engine, prefill)

    def whole(
        self, request: ClientRequest, reason: str, attempt: int = 1, tried: frozenset[str] = frozenset()
    ) -> Route:
        """All of it on one decode engine. Raises NoRoutableEngine."""
        wish = Wish(Role.DECODE, request.model, tried=tried, heard=request.speaks)
        return Route(attempt, self._picker.pick(self._fleet.candidates(), wish).engine, unsplit=reason)

    def _split_or_local(self, request: ClientRequest) -> Route:
        try:
            return self.split(request)
        except NoRoutableEngine:
            if self._policies.on_prefill_failure is not Policy.LOCAL:
                raise
            return self.whole(request, NO_PREFILL)

    def _length_of(self, model: str) -> int | None:
        """A model that nobody has heard of is the client's fault, unless no engine has been heard of at all."""
        models = self._fleet.models()
        if not models:
            raise NoRoutableEngine("no engine has answered yet")
        if model not in models:
            raise ModelNotFound(f"The model `{model:.200}` does not exist.", param="model")
        return models[model]
