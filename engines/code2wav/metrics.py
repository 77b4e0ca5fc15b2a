"""What Code2Wav counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.running = Gauge("duet_code2wav_running", "Requests that are being spoken.", registry=self.registry)
        self.samples = Counter("duet_code2wav_samples", "Samples sent.", registry=self.registry)
        self.failed = Counter(
            "duet_code2wav_failed", "Requests that ended with an error, by its code.", ["code"], registry=self.registry
        )
        self.batch = Histogram(
            "duet_code2wav_batch",
            "Chunks decoded together. Always 1 under load: chunks differ too much in length.",
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
