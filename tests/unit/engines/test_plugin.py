"""The plugin's cures, in interpreters of their own: they change the whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLATFORMS = "class current_platform:\n    is_cpu = staticmethod(lambda: {cpu})\n"
API = """
class nixl_agent_config:
    def __init__(self, enable_prog_thread=True, enable_listen_thread=False, num_threads=0):
        self.thread, self.listen, self.threads = enable_prog_thread, enable_listen_thread, num_threads
class nixl_agent: pass
"""
LOADER = """
class Fault(RuntimeError): pass
def load_audio(code):
    fault = Fault(f"code {code}")
    fault.code = code
    raise fault
"""
FAKES = {
    "vllm/__init__.py": "",
    "vllm/platforms.py": PLATFORMS.format(cpu=True),
    "vllm/multimodal/__init__.py": "",
    "vllm/multimodal/audio.py": "resample_audio_torchaudio, resample_audio_soxr = 'torchaudio', 'soxr'\n",
    "vllm/multimodal/media/__init__.py": "",
    "vllm/multimodal/media/audio.py": LOADER,
    "torch/__init__.py": "from torch import accelerator\n",
    "torch/accelerator.py": "def current_device_index(): raise RuntimeError('no accelerator')\n",
    "nixl_cu12/__init__.py": "from nixl_cu12._api import nixl_agent, nixl_agent_config\n",
    "nixl_cu12/_api.py": API,
    "nixl_cu12/_bindings.py": "nixlXferTelemetry = 'telemetry'\n",
}
REGISTER = "from engines.compat.plugin import register; register(); register()\n"


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    for name, text in FAKES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(fakes: Path, code: str, *, fails: bool = False, **env: str) -> str:
    """What `code` prints, without any installed package; its errors if it `fails`."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{fakes}{os.pathsep}{ROOT}", **env}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout.strip()


NIXL = REGISTER + (
    "from importlib.util import find_spec; import sys\n"
    "assert 'nixl' not in sys.modules and 'nixl_cu12' not in sys.modules, 'imported before it was asked for'\n"
    "assert find_spec('nixl') is not None and find_spec('nixl.nothing') is None\n"
    "from nixl._api import nixl_agent, nixl_agent_config as config\n"
    "from nixl._bindings import nixlXferTelemetry\n"
    "import nixl, nixl_cu12\n"
    "assert nixl.nixl_agent_config is config and nixl._api.nixl_agent is nixl_agent is nixl_cu12.nixl_agent\n"
    "assert config(num_threads=3).threads == 3 and config(True, True).listen\n"
    "print(config().thread, config(True).thread, config(enable_prog_thread=True).thread, nixlXferTelemetry)\n"
)


def test_nixl_comes_from_the_one_build_that_is_installed(fakes: Path) -> None:
    assert run(fakes, NIXL) == "False True True telemetry"


def test_the_progress_thread_can_be_left_on(fakes: Path) -> None:
    assert run(fakes, NIXL, DUET_NIXL_PROGRESS_THREAD="1") == "True True True telemetry"


def test_an_installed_nixl_wins(fakes: Path) -> None:
    (fakes / "nixl.py").write_text("own = 'itself'\n")
    assert run(fakes, REGISTER + "import nixl; print(nixl.own)") == "itself"


def test_without_any_build_there_is_no_nixl(fakes: Path) -> None:
    (fakes / "nixl_cu12").rename(fakes / "elsewhere")
    assert run(fakes, REGISTER + "from importlib.util import find_spec; print(find_spec('nixl'))") == "None"


YIELD = (
    "import os, time; slept = []; time.sleep = slept.append\n"
    + REGISTER
    + "os.sched_yield(); print([round(s * 1e6) for s in slept])"
)


@pytest.mark.parametrize(
    ("setting", "slept"), [({}, "[50]"), ({"DUET_YIELD_US": "200"}, "[200]"), ({"DUET_YIELD_US": "0"}, "[]")]
)
@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="needs os.sched_yield: Linux")
def test_a_worker_that_waits_sleeps(fakes: Path, setting: dict[str, str], slept: str) -> None:
    assert run(fakes, YIELD, **setting) == slept


def test_the_device_has_an_index(fakes: Path) -> None:
    assert run(fakes, REGISTER + "import torch; print(torch.accelerator.current_device_index())") == "0"


RESAMPLER = REGISTER + "from vllm.multimodal import audio; print(audio.resample_audio_torchaudio)"


def test_sound_is_resampled_by_what_is_there(fakes: Path) -> None:
    assert run(fakes, RESAMPLER) == "soxr"
    (fakes / "torchaudio.py").write_text("")
    assert run(fakes, RESAMPLER) == "torchaudio"


LOADED = REGISTER + (
    "from vllm.multimodal.media import audio\n"
    "try: audio.load_audio({code})\n"
    "except Exception as e: print(type(e).__name__, e)\n"
)


def test_sound_that_cannot_be_read_is_its_senders_fault(fakes: Path) -> None:
    assert run(fakes, LOADED.format(code=27)) == "ValueError Invalid or corrupted audio data: code 27"
    assert run(fakes, LOADED.format(code=2)) == "Fault code 2"


@pytest.mark.vllm
def test_vllm_itself_resamples_sound(tmp_path: Path) -> None:
    """As its models do, which say no more than the rate they want: 1 kHz at 24 kHz is 1 kHz at 16 kHz."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make install ENGINES=cpu")
    code = REGISTER + (
        "import numpy as np\n"
        "from vllm.multimodal.parse import MultiModalDataParser\n"
        "heard = np.sin(2 * np.pi * 1000 * np.arange(24000) / 24000).astype('float32')\n"
        "data = MultiModalDataParser(target_sr=16000).parse_mm_data({'audio': [(heard, 24000)]})\n"
        "got = data['audio'].get(0)\n"
        "wanted = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)\n"
        "print('RESULT', got.dtype, got.shape, np.abs(got - wanted)[500:-500].max() < 1e-2)\n"
    )
    env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "RESULT float32 (16000,) True"


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_setting_that_is_no_time_is_refused_by_name(fakes: Path, value: str) -> None:
    said = run(fakes, REGISTER, fails=True, DUET_YIELD_US=value)
    assert f"DUET_YIELD_US {value!r}: expected microseconds" in said


def test_a_gpu_is_left_alone(fakes: Path) -> None:
    (fakes / "vllm/platforms.py").write_text(PLATFORMS.format(cpu=False))
    code = "import os, sys; was = os.sched_yield, list(sys.meta_path)\n" + REGISTER
    assert run(fakes, code + "print((os.sched_yield, sys.meta_path) == was)") == "True"
    assert run(fakes, RESAMPLER) == "torchaudio"
    assert run(fakes, LOADED.format(code=27)) == "Fault code 27"
