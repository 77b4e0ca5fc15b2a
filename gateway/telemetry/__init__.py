"""What the gateway measures. `metrics.py` lists every metric with what to do about it."""

from gateway.telemetry.metrics import Metrics

__all__ = ["Metrics"]
