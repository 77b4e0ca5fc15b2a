"""The four engines of speech as the command line starts them, with the tiny Qwen3-Omni."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from common.channel.reference import Key, Reference
from common.connectors import DEFAULT, connector
from common.engine import Role
from common.process import Child
from tests.contract.talker.oracle import Case, Oracle, cases, sound, with_sound
from tests.ports import own_ports
from tests.real_engines import GRACE, RealEngine, spec_of, wait_for

ONLY_SOUND = ("--limit-mm-per-prompt", '{"audio": 1, "image": 0, "video": 0}')


@dataclass(frozen=True)
class Stage:
    """One engine, and where its rows are pulled from."""

    engine: RealEngine
    channel: str

    def stream(self, request: str, stage: str) -> Reference:
        return Reference(self.channel, Key(request, stage))


@dataclass(frozen=True)
class Engines:
    """`omni` and `talker_model` are the models' folders."""

    prefill: Stage
    decode: Stage
    talker: Stage
    code2wav: RealEngine
    omni: Path
    talker_model: Path

    @property
    def all(self) -> list[RealEngine]:
        return [self.prefill.engine, self.decode.engine, self.talker.engine, self.code2wav]


@dataclass(frozen=True)
class Stages(Engines):
    """With transformers' word: `oracle` are the usual cases, `long` three of a hundred tokens, `resampled` one with
    sound of 24 kHz. `whole` is its Code2Wav over all codes at once: `[frames][16]` to float32 `[samples]`."""

    oracle: list[Case]
    long: list[Case]
    resampled: Case
    whole: Callable[[Sequence[Sequence[int]]], Any]


LONG = ("Tell me a story", "And another one, longer.", "How does it end?")
"""What is answered with a hundred tokens."""


@contextmanager
def engines(root: Path, kv: str = DEFAULT) -> Iterator[Engines]:
    """All four, on their way up; asked to stop together."""
    from engines.talker import make_talker
    from engines.tiny import make_omni

    omni = make_omni(root / "omni")
    spoken = make_talker(omni, root / "talker")
    with ExitStack() as stack:
        prefill, decode = (thinker(stack, omni, role, root, kv=kv) for role in (Role.PREFILL, Role.DECODE))
        found = Engines(prefill, decode, talker(stack, spoken, root), code2wav(stack, omni, root), omni, spoken)
        yield found
        for engine in found.all:
            engine.child.ask_to_stop()


def with_oracle(found: Engines) -> Stages:
    """Asks transformers while the engines start, and returns when they have."""
    oracle = Oracle(found.omni)
    long = [oracle.run([{"role": "user", "content": text}], 100) for text in LONG]
    resampled = oracle.run([with_sound("What is it?", sound(1.7, 200.0, rate=24000))], 8)
    stages = Stages(**vars(found), oracle=cases(oracle), long=long, resampled=resampled, whole=oracle.sound)
    wait_for(*found.all)
    return stages


def thinker(stack: ExitStack, model: Path, role: Role, root: Path, *flags: str, kv: str = DEFAULT, **env: str) -> Stage:
    from engines.thinker import command, environment

    channel = f"ipc://{root}/{role.value}.rows"
    spec = replace(spec_of(model, role, kv), channel=channel, extra=(*ONLY_SOUND, *flags))
    argv, added = command(spec, device="cpu"), environment(spec, device="cpu")
    started = _started(stack, role.value, spec.port, argv, {**added, **env}, root, role)
    options = connector(kv).url_options(side_port=spec.side_port or 0) if role is Role.PREFILL else {}
    told = f"{started.url}?{urlencode(options)}" if options else started.url
    return Stage(replace(started, told=told), channel)


def talker(stack: ExitStack, model: Path, root: Path, *flags: str, **env: str) -> Stage:
    from engines.talker.launch import command, environment

    channel = f"ipc://{root}/codes"
    spec = replace(spec_of(model, Role.BOTH, None), channel=channel, extra=flags)
    argv, added = command(spec, device="cpu"), environment(spec, device="cpu")
    return Stage(_started(stack, "talker", spec.port, argv, {**added, **env}, root), channel)


def code2wav(stack: ExitStack, model: Path, root: Path) -> RealEngine:
    from engines.code2wav.launch import Code2WavSpec, command, environment

    spec = Code2WavSpec(str(model), *own_ports(1), served_name="tiny", device="cpu")
    argv, env = command(spec, device="cpu"), environment(spec, device="cpu")
    return _started(stack, "code2wav", spec.port, argv, env, root)


def _started(
    stack: ExitStack,
    name: str,
    port: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    root: Path,
    role: Role = Role.BOTH,
) -> RealEngine:
    child = stack.enter_context(Child(name, argv, log=root / f"{name}.log", env=env, grace=GRACE))
    url = f"http://127.0.0.1:{port}"
    return RealEngine(role, url, url, child)
