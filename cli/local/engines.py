"""The engines of a plan, each as what is needed to start it and to tell the gateway of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from common.connectors import connector
from common.engine import Role
from engines.code2wav import launch as code2wav_launch
from engines.code2wav.launch import Code2WavSpec
from engines.talker import launch as talker_launch
from engines.thinker import launch as thinker_launch
from engines.thinker.spec import EngineSpec


class Stage(StrEnum):
    """The value is the flag of `duet gateway` that names such an engine."""

    PREFILL = "prefill"
    DECODE = "decode"
    TALKER = "talkers"
    CODE2WAV = "code2wavs"


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """`url` is where it answers, `told` is that with what the gateway must know of it; `env` is added to this
    process's environment. `after` are engines that must answer before it is started."""

    name: str
    stage: Stage
    url: str
    told: str
    command: Sequence[str]
    env: Mapping[str, str]
    after: Sequence[str] = ()


def thinker(name: str, spec: EngineSpec) -> LocalEngine:
    device = thinker_launch.device_of(spec)
    stage = Stage.PREFILL if spec.role is Role.PREFILL else Stage.DECODE
    command = thinker_launch.command(spec, device=device)
    env = thinker_launch.environment(spec, device=device)
    return LocalEngine(name, stage, _url(spec), _told(spec), command, env)


def talker(name: str, spec: EngineSpec) -> LocalEngine:
    device = thinker_launch.device_of(spec)
    command, env = talker_launch.command(spec, device=device), talker_launch.environment(spec, device=device)
    return LocalEngine(name, Stage.TALKER, _url(spec), _url(spec), command, env)


def code2wav(name: str, spec: Code2WavSpec, flags: Sequence[str] = ()) -> LocalEngine:
    """`flags` win over what the spec says."""
    device = thinker_launch.device_of(spec)
    command, env = code2wav_launch.command(spec, device=device), code2wav_launch.environment(spec, device=device)
    return LocalEngine(name, Stage.CODE2WAV, _url(spec), _url(spec), [*command, *flags], env)


def _url(spec: EngineSpec | Code2WavSpec) -> str:
    return f"http://{spec.host}:{spec.port}"


def _told(spec: EngineSpec) -> str:
    """With what its connector must be told of it."""
    if spec.role is not Role.PREFILL or spec.connector is None or spec.side_port is None:
        return _url(spec)
    options = connector(spec.connector, lease=spec.lease).url_options(side_port=spec.side_port)
    return f"{_url(spec)}?{urlencode(options)}" if options else _url(spec)
