"""The few of vLLM's metrics that are read, in Prometheus' text format."""

from __future__ import annotations

from engines.sim.engine import SimEngine
from engines.sim.handoff import BLOCK

SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
BLOCKS = 512
"""What `kv_cache_usage_perc` is a share of; nothing is refused when they are used up."""


def exposition(engine: SimEngine) -> str:
    engine.kv.expire()
    held = sum(-(-one.tokens // BLOCK) for one in engine.kv.held.values())
    series: list[tuple[str, str, dict[str, str], float]] = [
        ("vllm:num_requests_running", "gauge", {}, engine.running),
        ("vllm:num_requests_waiting", "gauge", {}, 0),
        ("vllm:kv_cache_usage_perc", "gauge", {}, min(1.0, held / BLOCKS)),
        ("vllm:prompt_tokens_total", "counter", {}, sum(engine.sources.values())),
        *(
            ("vllm:prompt_tokens_by_source_total", "counter", {"source": source}, engine.sources[source])
            for source in SOURCES
        ),
        ("vllm:generation_tokens_total", "counter", {}, engine.generated),
        ("vllm:nixl_num_kv_expired_reqs_total", "counter", {}, engine.kv.expired),
        ("vllm:nixl_num_failed_transfers_total", "counter", {}, engine.failed_transfers),
    ]
    lines: list[str] = []
    named = ""
    for name, kind, extra, value in series:
        if name != named:
            named = name
            lines.append(f"# TYPE {name} {kind}")
        labels = {"engine": "0", "model_name": engine.model, **extra}
        inner = ",".join(f'{k}="{v}"' for k, v in labels.items())
        lines.append(f"{name}{{{inner}}} {float(value)}")
    return "\n".join(lines) + "\n"
