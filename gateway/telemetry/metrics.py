"""Every metric, what it means, and what to do about it. Children are made once and kept: nothing is looked up
by label on the hot path more than once a request, and nothing is counted per token.

| metric | look at it when | then |
| --- | --- | --- |
| `duet_requests_total{endpoint,outcome}` | `failed` grows | `/admin/requests?state=failed` names each error |
| `duet_request_seconds` | answers are slow | compare with `duet_prefill_seconds` and `duet_ttft_seconds` |
| `duet_ttft_seconds{path}` | first words are late | `split` beside `unsplit` tells what the handoff costs |
| `duet_prefill_seconds` | it grows with load | add prefill engines |
| `duet_handoff_seconds` | above a few ms for short prompts | the KV transfer is slow: look at the connector's network |
| `duet_requests_in_flight` | it only grows | an engine hangs: see `duet_engine_up` |
| `duet_unsplit_total{reason}` | it grows | those requests get no prefill engine: `reason` says why |
| `duet_retries_total{after}` | it grows | further attempts, by what failed: `prefill`, `handoff`, `decode` |
| `duet_retries_denied_total` | it grows | the retry budget was used up: many requests fail at once |
| `duet_handoffs_abandoned_total` | it grows | KV waited at prefill for nobody: clients left, or decode refused |
| `duet_handoffs_released_total` | below the former | the difference was not released, and waited for its lease's end |
| `duet_handoffs_unnamed_total` | it grows | prefills were cut, or gave no good handoff: their KV may lie unnamed |
| `duet_handoffs_held` | it stays high | KV of both kinds fills prefill's blocks: shorten the lease |
| `duet_clients_stalled_total` | it grows | clients took nothing for `write_timeout`, and were cut off |
| `duet_engine_failures_total{engine}` | one stands out | the engine's log says why |
| `duet_breaker_opened_total{engine}` | it grows | the engine fails at requests though it answers its health checks |
| `duet_speech_total{outcome}` | `failed` grows | `/admin/requests` names the error of each; the text was good |
| `duet_first_audio_seconds` | first sounds are late | beyond `duet_ttft_seconds` it is Talker and Code2Wav |
| `duet_speech_retries_total{after}` | it grows | `talker` or `code2wav` engines fail in mid-speech |
| `duet_audio_bytes_total` | it stands still under load | no sound reaches clients; s16le, before any encoding |
| `duet_errors_total{code}` | it grows | the code that clients saw; `engine_refused` for others that engines made up |
| `duet_engine_up{engine,role}` | 0 | the engine does not answer `/health`, or serves no model |
| `duet_engines_refused_total{engine}` | it grows | the engine answers but does not fit: `/admin/engines` says why |
| `duet_engine_load{engine}` | uneven | requests in flight of all replicas, as the store counts them |
| `duet_store_seconds{op}` | above 5 ms | Redis is far or busy |
| `duet_store_errors_total{op}` | it grows | Redis does not answer; admissions fail with 503 meanwhile |
| `duet_store_conflicts_total` | it grows | another replica moved a request of this one: it had lost its lease |
| `duet_reaped_total` | it grows | gateways died or stalled for longer than `owner_lease` |
"""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from common.errors import DuetError, EngineRefused

ENGINES_CODES = frozenset({"context_length_exceeded", "engine_error", "model_not_found", "rate_limit_exceeded"})
"""Codes of engines that are labels of their own."""

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """All metrics of one gateway process, in a registry of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.requests = Counter("duet_requests", "Requests by outcome", ["endpoint", "outcome"], registry=r)
        self.in_flight = Gauge("duet_requests_in_flight", "Requests that this gateway runs now", registry=r)
        self.seconds = Histogram(
            "duet_request_seconds", "From admission to the reply's last byte", buckets=_LONG, registry=r
        )
        self.ttft = Histogram(
            "duet_ttft_seconds", "From admission to the reply's first byte", ["path"], buckets=_LONG, registry=r
        )
        self.ttft_split = self.ttft.labels("split")
        self.ttft_unsplit = self.ttft.labels("unsplit")
        self.prefill = Histogram("duet_prefill_seconds", "From prefill sent to its reply", buckets=_LONG, registry=r)
        self.handoff = Histogram(
            "duet_handoff_seconds", "From prefill's reply to decode's first bytes", buckets=_FAST, registry=r
        )
        self.unsplit = Counter("duet_unsplit", "Requests that one decode engine ran whole", ["reason"], registry=r)
        self.retries = Counter("duet_retries", "Further attempts, by what failed", ["after"], registry=r)
        self.retries_denied = Counter("duet_retries_denied", "Attempts that the budget forbade", registry=r)
        self.released = Counter("duet_handoffs_released", "Abandoned KV that was freed at once", registry=r)
        self.unnamed = Counter("duet_handoffs_unnamed", "Prefills whose KV may lie unnamed", registry=r)
        self.held = Gauge("duet_handoffs_held", "KV that waits for its lease's end", registry=r)
        self.stalled = Counter("duet_clients_stalled", "Clients that took nothing and were cut off", registry=r)
        self.engine_failures = Counter(
            "duet_engine_failures", "Requests that an engine failed at", ["engine"], registry=r
        )
        self.breaker_opened = Counter("duet_breaker_opened", "How often a breaker opened", ["engine"], registry=r)
        self.abandoned = Counter("duet_handoffs_abandoned", "KV that waited at prefill for nobody", registry=r)
        self.speech = Counter("duet_speech", "Spoken answers by outcome", ["outcome"], registry=r)
        self.first_audio = Histogram(
            "duet_first_audio_seconds", "From admission to the first sound", buckets=_LONG, registry=r
        )
        self.speech_retries = Counter("duet_speech_retries", "Speech that went on elsewhere", ["after"], registry=r)
        self.audio_bytes = Counter("duet_audio_bytes", "Sound that came from Code2Wav", registry=r)
        self.errors = Counter("duet_errors", "Errors that clients saw, by code", ["code"], registry=r)
        self.engine_up = Gauge("duet_engine_up", "1 if the engine is routable", ["engine", "role"], registry=r)
        self.engines_refused = Counter(
            "duet_engines_refused", "Engines that do not fit the others", ["engine"], registry=r
        )
        self.engine_load = Gauge("duet_engine_load", "Requests in flight, all replicas", ["engine"], registry=r)
        self.store_seconds = Histogram(
            "duet_store_seconds", "One round trip to the store", ["op"], buckets=_FAST, registry=r
        )
        self.store_errors = Counter("duet_store_errors", "Store operations that failed", ["op"], registry=r)
        self.store_conflicts = Counter(
            "duet_store_conflicts", "Transitions that another replica had overtaken", registry=r
        )
        self.reaped = Counter("duet_reaped", "Requests of dead gateways, closed as expired", registry=r)

    def saw(self, error: DuetError) -> None:
        """A client was told of an error. What an engine calls it may be anything, and there are only so many labels."""
        code = str(error.code)
        if isinstance(error, EngineRefused) and code not in ENGINES_CODES:
            code = "engine_refused"
        self.errors.labels(code).inc()

    def forget(self, engine: str, role: str) -> None:
        """An engine is no longer of the fleet: those that come and go must not gather here."""
        for metric in (self.engine_failures, self.breaker_opened, self.engine_load, self.engines_refused):
            with suppress(KeyError):
                metric.remove(engine)
        with suppress(KeyError):
            self.engine_up.remove(engine, role)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
