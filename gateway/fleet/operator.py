"""The fleet as it should be: what discovery found, and what operators ordered over it.

Operators drain, add and remove engines, on every replica by telling one.

An order stands in the store. The replica that hears it carries it out at once, the others at their next look, and a
replica that starts later before its first request. A store that comes back empty is told again by the first replica
that notices.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.clock import Clock
from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import BadRequest, ConfigurationError, Conflict, EngineError, EngineNotFound, StoreUnavailable
from common.strict import json_object
from common.tasks import Background, Lasting
from gateway.discovery import Discovery, Found
from gateway.discovery.static import NAME as SETTINGS
from gateway.discovery.told import engine_of
from gateway.fleet.fit import Identity, contradiction, misfit
from gateway.fleet.fleet import Fleet
from gateway.fleet.gauges import Looker
from gateway.fleet.member import Member
from gateway.store.port import Order, Orders, Store

log = logging.getLogger(__name__)

NOBODY: Mapping[str, Any] = {}
BY_ORDER = "operator"
"""The source of an engine that an operator added."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An engine that belongs to the fleet, and whose word that is."""

    source: str
    found: Found

    @property
    def stranger(self) -> bool:
        return self.source not in (SETTINGS, BY_ORDER)


class Operator:
    def __init__(
        self,
        fleet: Fleet,
        discovery: Discovery,
        *,
        store: Store,
        connector: Connector,
        looker: Looker,
        clock: Clock,
        replica: str,
        interval: float,
    ) -> None:
        """`interval` is the seconds between looks at the orders, and at what discovery found."""
        self._fleet = fleet
        self._discovery = discovery
        self._lives: dict[str, str] = {}
        """Engine -> its life, as its source told it last."""
        self._store = store
        self._connector = connector
        self._looker = looker
        self._clock = clock
        self._replica = replica
        self._interval = interval
        self._given: Orders | None = None
        """The orders that stood last; None as long as there was never one."""
        self._refused: dict[str, str] = {}
        """Engine -> why the order to add it cannot be carried out."""
        self._each = Lasting(log, "a look at operators' orders")
        self._watch = Background(self._run)

    async def start(self) -> None:
        """The orders that stand are carried out before anything is routed."""
        await self._try_look()
        self._watch.start()

    async def stop(self) -> None:
        await self._watch.stop()

    async def drain(self, engine: str) -> Member:
        """From now on the engine gets no new request. Raises EngineNotFound, StoreUnavailable."""
        member = self._member(engine)
        await self._order(engine, {Order.DRAIN: "1"}, told="engine_drained")
        return member

    async def undrain(self, engine: str) -> Member | None:
        """The engine gets requests again; None for one that is not here now and for which an order stands, so that it
        does not come back drained. Raises EngineNotFound, StoreUnavailable."""
        await self._expect_known(engine)
        await self._order(engine, {}, drop=(Order.DRAIN,), told="engine_undrained")
        return self._fleet.members.get(engine)

    async def add(self, url: str, role: Role, declared: Mapping[str, Any] = NOBODY) -> Member:
        """One more engine. `declared` is what the caller says it is, in the names of `/duet/identity`. Adding an engine
        that is there already changes nothing but this.

        Raises BadRequest for a URL that cannot be used, Conflict for an engine that is there as another or does not
        fit those that are, StoreUnavailable.
        """
        engine = self._engine(url, role)
        there = self._fleet.members.get(engine.id)
        found = self._discovery.engines().get(engine.id)
        if there is not None:
            _expect_same(engine, there.engine)
        elif found is not None:
            _expect_same(engine, found[1].engine)
        await self._expect_fit(engine, declared)
        put = {}
        if found is None or found[0] != SETTINGS:
            put[Order.ADD] = json.dumps({"url": url, "role": role.value})
        if declared:
            put[Order.DECLARE] = json.dumps(dict(declared))
        drop = (Order.REMOVE,) if there is not None else (Order.REMOVE, Order.DRAIN)
        await self._order(engine.id, put, drop=drop, told="engine_added")
        return self._fleet.members[engine.id]

    async def remove(self, engine: str) -> None:
        """The engine leaves the fleet once what runs on it has ended; of one that is not here, the orders are over.
        Raises EngineNotFound, StoreUnavailable."""
        await self._expect_known(engine)
        put = {Order.REMOVE: "1"} if engine in self._discovery.engines() else {}
        await self._order(engine, put, drop=(Order.ADD, Order.DECLARE, Order.DRAIN), told="engine_removed")

    async def look(self) -> None:
        """Carries out the orders that stand. Raises StoreUnavailable; then the last ones stand."""
        try:
            found = await self._store.orders()
            if found is None and self._given is not None:
                log.warning("the store has lost operators' orders; those that stood last are written again")
                await self._store.restore_orders(self._given)
                found = await self._store.orders()
            self._given = self._given if found is None else found
        finally:
            self._carry_out(self._given or {})

    async def _order(self, engine: str, put: Mapping[Order, str], *, drop: Sequence[Order] = (), told: str) -> None:
        await self._store.give_order(engine, put, drop=drop, last=self._given)
        await self._store.tell(self._clock.now(), {"event": told, "engine": engine, "replica": self._replica})
        log.info("%s: %s, as an operator asked", told.replace("_", " "), engine)
        await self.look()

    def _carry_out(self, orders: Orders) -> None:
        wanted = self._wanted(orders)
        for id_, member in list(self._fleet.members.items()):
            if id_ not in wanted or not _is_at(wanted[id_].found.engine, member.engine):
                self._fleet.dismiss(id_)  # one that is there as another joins again once it is forgotten
            else:
                member.leaving = False
                member.source, member.stranger = wanted[id_].source, wanted[id_].stranger
        for id_, one in wanted.items():
            if id_ not in self._fleet.members:
                self._fleet.join(one.found.engine, source=one.source, stranger=one.stranger)
                self._lives.pop(id_, None)
            self._follow(id_, one.found)
            member, standing = self._fleet.members[id_], orders.get(id_, {})
            member.draining = Order.DRAIN in standing
            member.declared = {**one.found.identity, **_declared(standing)}
        self._looker.keep(self._fleet.members)

    def _wanted(self, orders: Orders) -> dict[str, Wanted]:
        wanted = {
            id_: Wanted(source, found)
            for id_, (source, found) in self._discovery.engines().items()
            if Order.REMOVE not in orders.get(id_, {})
        }
        for id_, text in ((id_, o[Order.ADD]) for id_, o in orders.items() if Order.ADD in o):
            if id_ in wanted:
                wanted[id_] = Wanted(BY_ORDER if wanted[id_].stranger else wanted[id_].source, wanted[id_].found)
            elif (engine := self._ordered(id_, text)) is not None:
                wanted[id_] = Wanted(BY_ORDER, Found(engine))
        return wanted

    def _follow(self, id_: str, found: Found) -> None:
        """Takes note of an engine's life; another one than before means that it was started anew."""
        if found.life is None:
            return
        if self._lives.setdefault(id_, found.life) != found.life:
            self._lives[id_] = found.life
            log.info("engine %s was started anew", id_)
            self._fleet.renew(id_)

    def _ordered(self, id_: str, text: str) -> Engine | None:
        try:
            said = json_object(text)
            url, role = said.get("url"), said.get("role")
            if not isinstance(url, str) or not isinstance(role, str):
                raise ValueError(f"url is {url!r:.80}, role is {role!r:.80}; expected a text each")
            engine = self._engine(url, Role(role))
            if engine.id != id_:
                raise ValueError(f"url is {url!r:.80}; expected one of {id_}, for which it stands")
        except (ValueError, BadRequest) as e:
            if self._refused.get(id_) != str(e):
                log.warning("the order to add engine %s cannot be carried out here: %s", id_, e)
            self._refused[id_] = str(e)
            return None
        self._refused.pop(id_, None)
        return engine

    def _engine(self, url: str, role: Role) -> Engine:
        try:
            return engine_of(url, role, self._connector)
        except ConfigurationError as e:
            raise BadRequest(e.message, param="url") from None

    async def _expect_fit(self, engine: Engine, declared: Mapping[str, Any]) -> None:
        earlier = _declared((self._given or {}).get(engine.id, {}))
        try:
            told = await self._looker.identity_of(engine) or {}
        except EngineError as e:
            log.info("engine %s is added unseen: %s", engine.id, e.message)
            told = {}
        wrong = contradiction(declared, earlier, by="when it was added before") or contradiction(
            declared, told, by="by its own word"
        )
        others = {m.engine.id: (m.engine, m.known) for m in self._fleet.members.values() if m.up}
        others.pop(engine.id, None)
        wrong = wrong or misfit(engine, {**declared, **told}, others)
        if wrong is not None:
            raise Conflict(f"engine {engine.id} cannot be a {engine.role.value} engine here: {wrong}")

    def _member(self, engine: str) -> Member:
        member = self._fleet.members.get(engine)
        if member is None or member.leaving:
            known = ", ".join(self._fleet.members) or "none"
            raise EngineNotFound(f"engine {engine!r:.200} is not of the fleet: expected one of {known}")
        return member

    async def _expect_known(self, engine: str) -> None:
        """Of the fleet, or one for which an order stands, also one that another replica was given just now."""
        member = self._fleet.members.get(engine)
        if member is None or member.leaving:
            await self.look()
            if not (self._given or {}).get(engine):
                self._member(engine)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._try_look()

    async def _try_look(self) -> None:
        with self._each:
            try:
                await self.look()
            except StoreUnavailable as e:
                log.debug("operators' orders are not seen for now: %s", e.message)


def _declared(standing: Mapping[Order, str]) -> Identity:
    """What an operator said of an engine."""
    try:
        return json_object(standing.get(Order.DECLARE, "{}"))
    except ValueError:
        return NOBODY


def _is_at(engine: Engine, other: Engine) -> bool:
    return engine.url == other.url and engine.role is other.role


def _expect_same(new: Engine, named: Engine) -> None:
    """An engine of role `both` may be added as one of its legs: it is there as that, too."""
    same_role = new.role is named.role or named.role.serves(new.role)
    if new.url != named.url or not same_role or any(named.facts.get(k) != v for k, v in new.facts.items()):
        raise Conflict(
            f"engine {new.id} is there as {named.role.value} engine {named.url} {dict(named.facts)}; got role "
            f"{new.role.value}, {new.url} {dict(new.facts)}"
        )
