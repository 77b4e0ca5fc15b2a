"""`--worker-cls tests.e2e.features.listening_cpu.ListeningCPUWorker`."""

from __future__ import annotations

from engines.runner.cpu import PhaseCPURunner
from engines.talker.cpu import TalkerCPUWorker
from tests.e2e.features.listening import Listening


class ListeningCPURunner(Listening, PhaseCPURunner):
    pass


class ListeningCPUWorker(TalkerCPUWorker):
    runner = ListeningCPURunner
