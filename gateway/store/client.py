"""One round trip to Redis: connections, repeats, scripts that the server has lost, and one error for all that fails.

Everything is repeated here and nothing by redis-py, so that there is one bound on it. Repeating is safe: every write
carries an operation id or says the same thing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from common.errors import ConfigurationError, StoreUnavailable
from gateway.store import scripts
from gateway.store.port import Unreadable

MAX_CONNECTIONS = 32
TIMEOUT = 2.0
"""Seconds for a connection from the pool, to connect, and for each answer."""
LISTEN_FOR = 5.0
"""Seconds without a message after which a listener asks whether its connection still stands."""
REPEAT_AFTER = (0.02, 0.1)
"""Seconds between the tries of one round trip whose connection failed or whose answer did not come."""

WRONG_TYPE = "wrong kind of value"
"""In the words of the server where a key holds another type than a command is for; also out of a script."""

_PASSING = (RedisConnectionError, RedisTimeoutError, OSError)
"""Errors that another try may not have. A wrong password is a connection error to redis-py, but does not pass."""

Fill = Callable[[Pipeline], Any]
"""Puts the commands of one round trip into a pipeline."""


def client_from_url(url: str) -> Redis:
    """A client with a bounded pool. Raises ConfigurationError unless the URL is redis://, rediss:// or unix://.

    redis-py's own words stay out of the message: a mistake in a URL often puts a part of the password where a host or
    a port should be.
    """
    try:
        _expect_database(url)
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=TIMEOUT,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            decode_responses=True,
            encoding_errors="backslashreplace",  # what others wrote and is no text must not fail as a whole answer
            retry=Retry(NoBackoff(), 0),
        )
        make: Callable[[], object] = pool.make_connection
        make()  # finds options that no connection takes, without connecting
    except (TypeError, ValueError):
        raise ConfigurationError(
            "the Redis URL cannot be used: expected redis://[user:password@]host[:port][/db], the same with rediss:// "
            "for TLS, or unix://[user:password@]/path; special characters in a password are written as %XX"
        ) from None
    redis = Redis(connection_pool=pool)
    redis.auto_close_connection_pool = True
    return redis


def _expect_database(url: str) -> None:
    """redis-py takes a path that is no number for database 0."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not (database.isascii() and database.isdigit()):
        raise ValueError


class Client:
    """Any RedisError, and any failure to connect, becomes StoreUnavailable; a password is never in it."""

    def __init__(self, redis: Redis) -> None:
        """`redis` must decode responses."""
        self._redis = redis

    async def read(self, op: str, fill: Fill) -> list[Any]:
        """One round trip that may be abandoned. `op` names it in errors. Raises StoreUnavailable."""
        results = await self._answers(op, fill)
        for result in results:
            if isinstance(result, Exception):
                raise StoreUnavailable(f"the store refused ({op}): {_words(result)}")
        return results

    async def each(self, op: str, fill: Fill) -> list[Any]:
        """The same where each command reads a key of its own: one that holds another type than it should is
        `Unreadable`, and spoils no other. Raises StoreUnavailable."""
        results = await self._answers(op, fill)
        for result in results:
            if isinstance(result, Exception) and WRONG_TYPE not in str(result):
                raise StoreUnavailable(f"the store refused ({op}): {_words(result)}")
        return [
            Unreadable(f"its key is of another type: {r!s:.200}") if isinstance(r, Exception) else r for r in results
        ]

    async def _answers(self, op: str, fill: Fill) -> list[Any]:
        results = await self._repeated(op, fill)
        if any(isinstance(r, NoScriptError) for r in results):
            await self._repeated(op, _load_scripts)
            results = await self._repeated(op, fill)
        return results

    async def write(self, op: str, fill: Fill) -> list[Any]:
        """One round trip that is seen through even if its caller is cancelled, who then may still undo it: what was
        sent and not waited for could land after what undoes it. Raises StoreUnavailable."""
        task = asyncio.ensure_future(self.read(op, fill))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # nobody is left to tell
            raise

    async def listen(self, op: str, channel: str) -> AsyncIterator[str]:
        """Messages of one channel as they come, over a connection of its own. Raises StoreUnavailable when it breaks,
        or stands still for longer than LISTEN_FOR without answering a ping."""
        pubsub = self._redis.pubsub()
        try:
            await pubsub.subscribe(channel)
            waiting = False
            while True:
                message = await pubsub.get_message(timeout=LISTEN_FOR)
                if message is None and waiting:
                    raise StoreUnavailable(f"the store did not answer ({op}): no pong within {LISTEN_FOR:g} s")
                waiting = message is None
                if message is None:
                    await pubsub.ping()
                elif message["type"] == "message":
                    yield message["data"]
        except (RedisError, OSError) as e:
            raise StoreUnavailable(f"the store did not answer ({op}): {_words(e)}") from None
        finally:
            with suppress(RedisError, OSError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def aclose(self) -> None:
        with suppress(RedisError, OSError):
            await self._redis.aclose()

    async def _repeated(self, op: str, fill: Fill) -> list[Any]:
        for delay in (*REPEAT_AFTER, None):
            try:
                return await self._once(fill)
            except (RedisError, OSError) as e:
                passing = isinstance(e, _PASSING) and not isinstance(e, AuthenticationError)
                if delay is None or not passing:
                    raise StoreUnavailable(f"the store did not answer ({op}): {_words(e)}") from None
            await asyncio.sleep(delay)
        raise AssertionError("the last try returns or raises")

    async def _once(self, fill: Fill) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            fill(pipe)
            results: list[Any] = await pipe.execute(raise_on_error=False)
            return results


def _load_scripts(pipe: Pipeline) -> None:
    for script in scripts.ALL:
        pipe.execute_command("SCRIPT LOAD", script.text)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
