"""Announces one engine while it answers, and takes that back when it is gone or the announcer ends.

A heartbeat that fails is repeated with the next one: the registry may be away for a while, and the engine serves on.
An engine that is merely slow to answer is not taken back; its entry ends by itself if that goes on.
"""

from __future__ import annotations

import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from http.client import HTTPException
from threading import Event

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from common.errors import ConfigurationError
from common.registry.announcement import Announcement, Registry

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two heartbeats."""
TTL = 5.0
"""Seconds that an entry outlives its last heartbeat."""
SOONER = 4
"""How much sooner than else an engine that does not answer yet is asked again."""
WITHIN = 1.0
"""Seconds for an answer of the engine, and for one of Redis."""
INDEX_KEPT = 86400
LISTED_FOR = 3600.0
"""Seconds after which one that is not heard of leaves the index."""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""An engine is asked without the proxy that the environment may name."""


class Health(Enum):
    WELL = auto()
    SILENT = auto()
    """It took the connection and did not answer in time: it may be busy."""
    GONE = auto()
    """Nobody listens, or it says itself that it cannot."""


def health_of(url: str) -> Health:
    """How an engine is now, by its `/health`."""
    try:
        with _DIRECT.open(f"{url}/health", timeout=WITHIN) as reply:
            return Health.WELL if reply.status == 200 else Health.GONE
    except TimeoutError:
        return Health.SILENT
    except urllib.error.URLError as e:
        return Health.SILENT if isinstance(e.reason, TimeoutError) else Health.GONE
    except (OSError, HTTPException):
        return Health.GONE


class Announcer:
    """Not for several threads at once."""

    def __init__(
        self,
        redis_url: str,
        announcement: Announcement,
        *,
        prefix: str = "duet:",
        health: Callable[[], Health] | None = None,
        new_life: Callable[[], str] | None = None,
    ) -> None:
        """`health` looks at the engine; its URL's `/health` if not given. `new_life` names each further life after one
        that ended; without it an engine that was gone for a while is the same again.

        Raises ConfigurationError for a URL of Redis or of an engine that cannot be used.
        """
        engine = announcement.engine
        self._said = announcement
        self._id = engine.id
        self._registry = Registry(prefix)
        self._redis = connect(redis_url)
        self._health = health or (lambda: health_of(engine.url))
        self._new_life = new_life
        self._announced = False
        self._away = False

    def run(self, stop: Event) -> None:
        """Until `stop` is set; then the entry is taken back."""
        try:
            while not stop.is_set():
                self.beat()
                stop.wait(EVERY if self._announced else EVERY / SOONER)
        finally:
            self.withdraw()
            self._redis.close()

    def beat(self) -> None:
        """One look at the engine, and what follows of it."""
        health = self._health()
        if health is Health.WELL:
            self._announce()
        elif health is Health.GONE:
            self.withdraw()

    def withdraw(self) -> None:
        """Takes back what was announced, if anything was."""
        if not self._announced:
            return
        self._announced = False
        if self._write(replace(self._said, leaving=True)):
            log.info("engine %s is no longer announced", self._id)
        if self._new_life is not None:
            self._said = replace(self._said, life=self._new_life())

    def _announce(self) -> None:
        if not self._announced:
            self._said = replace(self._said, since=time.time())
        if self._write(self._said) and not self._announced:
            self._announced = True
            log.info("%s engine %s is announced", self._said.role.value, self._id)

    def _write(self, said: Announcement) -> bool:
        now = time.time()
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.set(self._registry.entry(self._id), said.text(), px=round(TTL * 1000))
                pipe.zadd(self._registry.index, {self._id: now})
                pipe.zremrangebyscore(self._registry.index, "-inf", now - LISTED_FOR)
                pipe.expire(self._registry.index, INDEX_KEPT)
                pipe.execute()
        except (RedisError, OSError) as e:
            if not self._away:
                log.warning("engine %s cannot be announced for now: %s", self._id, e or type(e).__name__)
            self._away = True
            return False
        self._away = False
        return True


def connect(url: str) -> Redis:
    """A client that has not connected yet. Raises ConfigurationError for a URL that cannot be used; redis-py's own
    words stay out of the message, because they may have a part of a password in them."""
    try:
        return Redis.from_url(
            url,
            socket_timeout=WITHIN,
            socket_connect_timeout=WITHIN,
            retry=Retry(NoBackoff(), 1),
            decode_responses=True,
        )
    except (TypeError, ValueError):
        raise ConfigurationError(
            "the registry's URL cannot be used: expected redis://[user:password@]host[:port][/db], rediss:// or unix://"
        ) from None
