from __future__ import annotations

from typing import Any

import pytest

from cli.doctor import redis
from cli.doctor.finding import Check, Severity
from cli.doctor.redis import RedisLook
from tests.unit.cli.doctoring import bad, whole

WARNING, FAULT = Severity.WARNING, Severity.FAULT
INFO = {
    "redis_version": "7.0.15",
    "role": "master",
    "cluster_enabled": 0,
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
}


def judged(save: str | None = "", latency: float = 0.2, **info: Any) -> list[tuple[Check, Severity]]:
    return bad(whole(redis.judge(RedisLook("r:6379/0", {**INFO, **info}, save, latency))))


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, []),
        ({"redis_version": "6.2.14"}, [(Check.REDIS_VERSION, FAULT)]),
        ({"redis_version": "10.0.0"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.0"}, []),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, [(Check.REDIS_VERSION, FAULT)]),
        ({"redis_version": ""}, [(Check.REDIS_VERSION, FAULT)]),
        ({"role": "slave"}, [(Check.REDIS_MODE, FAULT)]),
        ({"cluster_enabled": 1}, [(Check.REDIS_MODE, FAULT)]),
        ({"maxmemory_policy": "allkeys-lru"}, [(Check.REDIS_EVICTION, FAULT)]),
        ({"maxmemory_policy": "volatile-ttl", "maxmemory": 2**30}, [(Check.REDIS_EVICTION, FAULT)]),
        ({"maxmemory_policy": "noeviction", "maxmemory": 2**30}, []),
        ({"aof_enabled": 0}, [(Check.REDIS_PERSISTENCE, WARNING)]),
        ({"aof_enabled": 0, "save": "3600 1"}, []),
        ({"aof_enabled": 0, "save": None}, []),
        ({"rdb_last_bgsave_status": "err"}, [(Check.REDIS_PERSISTENCE, FAULT)]),
        ({"aof_last_write_status": "err"}, [(Check.REDIS_PERSISTENCE, FAULT)]),
        ({"latency": 7.5}, [(Check.REDIS_LATENCY, WARNING)]),
    ],
    ids=str,
)
def test_servers(info: dict[str, Any], expected: list[tuple[Check, Severity]]) -> None:
    assert judged(**info) == expected


def test_when_it_evicts_is_told() -> None:
    info = {**INFO, "maxmemory_policy": "allkeys-lfu", "maxmemory": 512 * 2**20}
    (found,) = [f for f in redis.judge(RedisLook("r", info, "", 0.1)) if f.check is Check.REDIS_EVICTION]
    assert found.what == "maxmemory-policy allkeys-lfu: at 512 MiB it throws keys away"


def test_a_server_that_refuses_info_is_not_judged_by_it() -> None:
    findings = redis.judge(RedisLook("r", {}, None, 9.0))
    assert bad(whole(findings)) == [(Check.REDIS_VERSION, WARNING), (Check.REDIS_LATENCY, WARNING)]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:p@h:6379/0", "h:6379/0"),
        ("rediss://:p%40q@[::1]:6380", "[::1]:6380"),
        ("unix:///run/valkey.sock", "/run/valkey.sock"),
        ("redis://h", "h"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redis.without_password(url) == shown
