"""A server that announces itself, as the environment asks. `duet engine …` sets it; any server may read it.

| variable | |
| --- | --- |
| `DUET_REGISTRY_URL` | Redis or Valkey; without it nothing is announced |
| `DUET_REDIS_PREFIX` | what the deployment's keys start with, as the gateways have it [duet:] |
| `DUET_ADVERTISE` | base URL at which gateways reach this engine |
| `DUET_ENGINE_LIFE` | one for all processes of one engine, another after each start |
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from common.engine import Engine, Role
from common.errors import ConfigurationError
from common.registry.announcement import Announcement
from common.registry.announcer import Announcer, connect

URL = "DUET_REGISTRY_URL"
PREFIX = "DUET_REDIS_PREFIX"
ADVERTISE = "DUET_ADVERTISE"
LIFE = "DUET_ENGINE_LIFE"
END_WITHIN = 3.0
"""Seconds that the process waits at its end until the entry is taken back."""


def variables(url: str, advertise: str, prefix: str | None = None) -> dict[str, str]:
    """The environment of an engine that is to announce itself. Raises ConfigurationError for a URL that is none."""
    connect(url).close()
    Engine.at(advertise, Role.BOTH)
    told = {URL: url, ADVERTISE: advertise, LIFE: uuid4().hex}
    return told if prefix is None else {**told, PREFIX: prefix}


def announce(role: Role, identity: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Thread | None:
    """Announces this process's engine beside whatever it does, from when it answers until it ends. None where the
    environment asks for nothing. Raises ConfigurationError."""
    env = os.environ if env is None else env
    url = env.get(URL)
    if not url:
        return None
    advertise = env.get(ADVERTISE)
    if not advertise:
        raise ConfigurationError(f"{ADVERTISE} is not set: expected the base URL at which gateways reach this engine")
    said = Announcement(advertise, role, env.get(LIFE) or uuid4().hex, 0.0, identity)
    announcer, stop = Announcer(url, said, prefix=env.get(PREFIX, "duet:")), Event()
    thread = Thread(target=announcer.run, args=(stop,), name="announcer", daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(END_WITHIN)

    atexit.register(end)
    return thread
