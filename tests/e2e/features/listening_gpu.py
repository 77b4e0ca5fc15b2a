"""`--worker-cls tests.e2e.features.listening_gpu.ListeningGPUWorker`."""

from __future__ import annotations

from engines.runner.gpu import PhaseGPURunner
from engines.talker.gpu import TalkerGPUWorker
from tests.e2e.features.listening import Listening


class ListeningGPURunner(Listening, PhaseGPURunner):
    pass


class ListeningGPUWorker(TalkerGPUWorker):
    runner = ListeningGPURunner
