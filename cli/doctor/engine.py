"""What is to be said of one engine by itself: pure."""

from __future__ import annotations

from cli.doctor.ask import EngineLook
from cli.doctor.finding import Check, Finding, fault, ok, warning
from common.connectors import Connector
from common.engine import Role

LOOK = "look whether it runs and has finished loading, at the end of its log, and at its address and port"


def judge(found: EngineLook, kv: Connector | None) -> list[Finding]:
    about = f"{found.engine.role.value} {found.engine.id}"
    if found.down is not None:
        down = fault(
            Check.ENGINE,
            found.down,
            why="the gateway leaves it out; without another one of its role every request is answered with 503",
            do=LOOK,
            about=about,
        )
        return [down]
    findings = [ok(Check.ENGINE, f"answers{'' if found.version is None else f', vLLM {found.version}'}", about=about)]
    findings.append(ok(Check.ENGINE_MODEL, _served(found), about=about))
    findings += [*_identity(found, kv, about), *_lookup(found, about), *_probe(found, about)]
    return findings


def _served(found: EngineLook) -> str:
    names = [
        name if model.max_model_len is None else f"{name} ({model.max_model_len} tokens)"
        for name, model in found.models.items()
    ]
    revision = found.told("revision")
    return f"serves {', '.join(names)}" + ("" if revision is None else f", revision {revision}")


def _identity(found: EngineLook, kv: Connector | None, about: str) -> list[Finding]:
    if found.identity is None:
        return []
    faults = []
    connector, role = found.told("connector"), found.told("role")
    if kv is not None and connector is not None and not _same(kv, connector):
        faults.append(
            fault(
                Check.ENGINE_IDENTITY,
                f"it runs {connector}, the gateway is set to {kv.name}",
                why="neither understands the other's handoff: decode recomputes the prompt, hangs, or dies",
                do=f"start it with {kv.name}, or set --connector (DUET_CONNECTOR) to {connector}",
                about=about,
            )
        )
    if role in set(Role) and not Role(role).serves(found.engine.role):
        faults.append(
            fault(
                Check.ENGINE_IDENTITY,
                f"it was started for {role}, and is listed for {found.engine.role.value}",
                why="an engine that is asked for a leg that it does not take refuses it, or dies",
                do=f"list it with --{role}, or start it with --role {found.engine.role.value}",
                about=about,
            )
        )
    if faults:
        return faults
    said = f"{connector or 'no connector told'}, {role or 'no role told'}"
    return [ok(Check.ENGINE_IDENTITY, said, about=about)]


def _same(kv: Connector, name: str) -> bool:
    return name.lower() in {n.lower() for n in (kv.name, *kv.aliases)}


def _lookup(found: EngineLook, about: str) -> list[Finding]:
    if found.lookup_failed is None:
        return []
    unknown = fault(
        Check.ENGINE_LOOKUP,
        found.lookup_failed,
        why="the connector must know this before a handoff can name the engine: the gateway leaves it out until then",
        do="start the engine with the connector that the gateway is set to; a side channel at a port of its own stands "
        "in the engine's URL",
        about=about,
    )
    return [unknown]


def _probe(found: EngineLook, about: str) -> list[Finding]:
    if found.refused is not None:
        refused = fault(
            Check.ENGINE_PROMPT,
            f"a completion of one token was refused: {found.refused}",
            why="it answers, but generates nothing",
            do="look at the end of its log",
            about=about,
        )
        return [refused]
    if found.details:
        return [ok(Check.ENGINE_DETAILS, "usage has prompt_tokens_details", about=about)]
    without = warning(
        Check.ENGINE_DETAILS,
        "usage has no prompt_tokens_details",
        why="clients cannot see cached_tokens: how much of a prompt was not computed again",
        do="start it with --enable-prompt-tokens-details",
        about=about,
    )
    return [without]
