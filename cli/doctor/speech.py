"""What is to be said of the engines that speak, and of whether anything can be spoken: pure.

Nothing is said where no setting and no source names one: text alone is served then.
"""

from __future__ import annotations

from collections.abc import Sequence

from cli.doctor.ask import EngineLook
from cli.doctor.engine import LOOK
from cli.doctor.finding import Check, Finding, fault, ok
from common.engine import Role
from gateway.fleet.identity import channel_of, speakers_of

SILENT = "the gateway leaves it out; without another one of its role every request for sound is refused"
ROLES = (Role.TALKER, Role.CODE2WAV)


def judge(stages: Sequence[EngineLook], thinkers: Sequence[EngineLook]) -> list[Finding]:
    """`stages` are Talkers and Code2Wavs."""
    if not stages:
        return []
    each = [_stage(found) for found in stages]
    well = [found for found, said in zip(stages, each, strict=True) if said.why == ""]
    return [*each, *_path(well, [t for t in thinkers if t.up])]


def _stage(found: EngineLook) -> Finding:
    role = found.engine.role
    about = f"{role.value} {found.engine.id}"
    if found.down is not None:
        return fault(Check.SPEECH_ENGINE, found.down, why=SILENT, do=LOOK, about=about)
    stage = found.told("stage")
    if stage is not None and stage != role.value:
        what = f"it says that it is a {stage}, and is listed as a {role.value}"
        do = f"list it as what it is, or start it with `duet engine {role.value}`"
        return fault(Check.SPEECH_IDENTITY, what, why=SILENT, do=do, about=about)
    names = speakers_of(found.identity)
    if role is Role.TALKER and not names:
        do = "start it with `duet engine talker`, which tells the voices of its model"
        return fault(Check.SPEECH_IDENTITY, "it tells no voices", why=SILENT, do=do, about=about)
    voices = f", voices {', '.join(names)}" if role is Role.TALKER else ""
    return ok(Check.SPEECH_ENGINE, f"answers, for {', '.join(found.models)}{voices}", about=about)


def _path(stages: Sequence[EngineLook], thinkers: Sequence[EngineLook]) -> list[Finding]:
    """Whether there is a Talker and a Code2Wav for what the Thinkers serve, and whether these are heard."""
    by_role = {role: {name for s in stages if s.engine.role is role for name in s.models} for role in ROLES}
    served = {name for thinker in thinkers for name in thinker.models}
    spoken = sorted(served & by_role[Role.TALKER] & by_role[Role.CODE2WAV])
    if not spoken:
        have = [f"{role.value}s speak for {_listed(names)}" for role, names in by_role.items()]
        nothing = fault(
            Check.SPEECH,
            f"nothing can be spoken: Thinkers serve {_listed(served)}, {', '.join(have)}",
            why="speech needs a Talker and a Code2Wav that are known by the name of the Thinkers' model: a request for "
            "sound is refused",
            do="start what is missing, and give all of them one --served-name",
        )
        return [nothing]
    deaf = [
        fault(
            Check.SPEECH_CHANNEL,
            why_deaf,
            why="a request for sound is sent to Thinkers that do, and is answered with 503 if there are none",
            do="start it with `duet engine thinker --channel auto`",
            about=f"{thinker.engine.role.value} {thinker.engine.id}",
        )
        for thinker in thinkers
        if set(spoken) & set(thinker.models) and (why_deaf := _unheard(thinker)) is not None
    ]
    return deaf or [ok(Check.SPEECH, f"{_listed(spoken)} can be spoken")]


def _unheard(thinker: EngineLook) -> str | None:
    """Why no Talker hears it, as the gateway finds; None if one does."""
    try:
        return None if channel_of(thinker.identity) is not None else "it tells no Talker what it computes"
    except ValueError as e:
        return str(e)


def _listed(names: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
