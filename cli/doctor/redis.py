"""Redis or Valkey, as the gateway would use it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cli.doctor.finding import Check, Finding, fault, ok, warning
from common.errors import StoreUnavailable

FLOORS = {"Redis": (7, 0), "Valkey": (7, 2)}
PINGS = 5
SLOW = 5.0
"""Milliseconds of one round trip: admission waits for one."""


@dataclass(frozen=True, slots=True)
class RedisLook:
    """`info` is its INFO, empty if that was refused. `save` is the snapshots' configuration, None if CONFIG was
    refused. `latency` is the best of a few pings, in milliseconds:
    the others wait for what else this process does meanwhile."""

    about: str
    info: Mapping[str, Any]
    save: str | None
    latency: float


async def look(url: str) -> RedisLook:
    """Raises StoreUnavailable if it does not answer, ConfigurationError for a URL that is none."""
    from gateway.store.client import Client, client_from_url

    client = Client(client_from_url(url))
    try:
        times = []
        for _ in range(PINGS):
            began = time.perf_counter()
            await client.read("ping", lambda pipe: pipe.ping())
            times.append((time.perf_counter() - began) * 1000)
        return RedisLook(
            about=without_password(url),
            info=await _unless_refused(client, "info", lambda pipe: pipe.info()) or {},
            save=(await _unless_refused(client, "config", lambda pipe: pipe.config_get("save")) or {}).get("save"),
            latency=min(times),
        )
    finally:
        await client.aclose()


def without_password(url: str) -> str:
    """Where a good URL leads, without who may."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def unreachable(error: StoreUnavailable, about: str) -> Finding:
    return fault(
        Check.REDIS,
        error.message,
        why="no request is admitted without it: every one is answered with 503",
        do="look whether it runs, whether --redis-url (DUET_REDIS_URL) has its address and password, and whether a "
        "firewall stands between",
        about=about,
    )


def judge(found: RedisLook) -> list[Finding]:
    about = found.about
    answers = ok(Check.REDIS, "answers", about=about)
    if not found.info:
        refused = warning(
            Check.REDIS_VERSION,
            "INFO is refused",
            why="its version, persistence and eviction policy cannot be looked at",
            do="allow INFO to this user (`ACL SETUSER … +info`), or look at them yourself",
            about=about,
        )
        return [answers, refused, _latency(found)]
    checks = (_version, _mode, _eviction, _persistence, _latency)
    return [answers, *(check(found) for check in checks)]


def _version(found: RedisLook) -> Finding:
    kind = "Valkey" if "valkey_version" in found.info else "Redis"
    seen = str(found.info.get("valkey_version") or found.info.get("redis_version", ""))
    floor = FLOORS[kind]
    if tuple(int(part) for part in seen.split(".")[:2] if part.isdigit()) >= floor:
        return ok(Check.REDIS_VERSION, f"{kind} {seen}", about=found.about)
    return fault(
        Check.REDIS_VERSION,
        f"{kind} {seen or 'of an unknown version'}",
        why="the gateway's scripts use commands that came with Redis 7.0 and Valkey 7.2",
        do="use Redis 7.0, Valkey 7.2, or later",
        about=found.about,
    )


def _mode(found: RedisLook) -> Finding:
    if found.info.get("cluster_enabled") == 1:
        return fault(
            Check.REDIS_MODE,
            "it is a node of a Redis Cluster",
            why="the gateway's client does not follow a cluster's redirections",
            do="use a single server, or one with replicas and a proxy or a service name for the master",
            about=found.about,
        )
    if found.info.get("role") == "slave":
        return fault(
            Check.REDIS_MODE,
            "it is a replica",
            why="a replica refuses every write, so no request is admitted",
            do="point --redis-url (DUET_REDIS_URL) at the master",
            about=found.about,
        )
    return ok(Check.REDIS_MODE, "takes writes", about=found.about)


def _eviction(found: RedisLook) -> Finding:
    policy, limit = found.info.get("maxmemory_policy"), found.info.get("maxmemory")
    if policy is None or policy == "noeviction":
        return ok(Check.REDIS_EVICTION, f"maxmemory-policy {policy or 'is not told'}", about=found.about)
    when = f"at {limit / 2**20:,.0f} MiB" if limit else "as soon as a maxmemory is set"
    return fault(
        Check.REDIS_EVICTION,
        f"maxmemory-policy {policy}: {when} it throws keys away",
        why="the record of a running request can vanish: it can then be neither shown, nor ended, nor counted as load",
        do="`CONFIG SET maxmemory-policy noeviction`, and in its configuration; or give Duet a Redis of its own",
        about=found.about,
    )


def _persistence(found: RedisLook) -> Finding:
    info, about = found.info, found.about
    broken = [n for n in ("rdb_last_bgsave_status", "aof_last_write_status") if info.get(n, "ok") != "ok"]
    if broken:
        return fault(
            Check.REDIS_PERSISTENCE,
            f"{broken[0]} is {info[broken[0]]}",
            why="by default Redis refuses every write until it can save again",
            do="look at its log and at the disk that it writes to",
            about=about,
        )
    if info.get("aof_enabled") == 1:
        return ok(Check.REDIS_PERSISTENCE, "append-only file", about=about)
    if found.save is None:
        return ok(
            Check.REDIS_PERSISTENCE, "no append-only file; CONFIG is refused, so snapshots are not told", about=about
        )
    if found.save:
        return ok(Check.REDIS_PERSISTENCE, f"snapshots ({found.save}): a crash loses what came since", about=about)
    return warning(
        Check.REDIS_PERSISTENCE,
        "nothing is saved to disk",
        why="when it restarts, the records of all requests are gone; those that run are answered, but cannot be shown, "
        "and what other replicas have in flight is counted from nothing",
        do="`CONFIG SET appendonly yes`, and in its configuration, unless that loss is fine",
        about=about,
    )


def _latency(found: RedisLook) -> Finding:
    seen = f"{found.latency:.2f} ms a round trip"
    if found.latency < SLOW:
        return ok(Check.REDIS_LATENCY, seen, about=found.about)
    return warning(
        Check.REDIS_LATENCY,
        seen,
        why="every request waits for a round trip before its prefill, so it is in each time to first token",
        do=f"bring it nearer to the gateway; below {SLOW:g} ms is good",
        about=found.about,
    )


async def _unless_refused(client: Any, op: str, fill: Any) -> Any:
    """Managed servers and tight ACLs refuse some commands: that is no reason to know nothing."""
    try:
        return (await client.read(op, fill))[0]
    except StoreUnavailable:
        return None
