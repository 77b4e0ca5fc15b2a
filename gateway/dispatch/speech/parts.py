"""What every spoken request needs and none owns."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from common.clock import Clock
from common.ids import IdSource
from gateway.dispatch.budget import RetryBudget
from gateway.dispatch.deadlines import LegDeadlines
from gateway.dispatch.policy import Policy
from gateway.fleet import Fleet
from gateway.routing import Picker
from gateway.store.port import Store
from gateway.telemetry import Metrics
from gateway.transport.port import EngineClient


@dataclass(frozen=True, slots=True)
class SpeechParts:
    """`audio_ttl` and `load_ttl` in seconds; `attempts` bounds the Talkers and the Code2Wavs of one speech, each;
    `recalled_most` in bytes: of what all references of one request to earlier answers stand for. `encoders` are for
    that alone: in the event loop's own threads names are resolved. They end with the parts."""

    client: EngineClient
    fleet: Fleet
    picker: Picker
    store: Store
    clock: Clock
    ids: IdSource
    metrics: Metrics
    deadlines: LegDeadlines
    budget: RetryBudget
    policy: Policy
    attempts: int
    audio_ttl: float
    load_ttl: float
    recalled_most: int
    encoders: Executor = field(default_factory=lambda: ThreadPoolExecutor(os.cpu_count(), "encoding"))
