"""The engines and the connector that the settings name, as far as they can be used.

The gateway refuses to start for what is a finding here: a doctor goes on and looks at the rest.
"""

from __future__ import annotations

from cli.doctor.finding import Check, Finding, fault, ok
from common.connectors import Connector
from common.engine import Engine, Role
from common.errors import ConfigurationError
from gateway.named import connector_of, named_engines, speech_engines_of
from gateway.settings import Settings

REFUSED = "the gateway refuses to start"
FIX = "name engines with --prefill URL and --decode URL, or DUET_PREFILL and DUET_DECODE, as http://host:port"
FIX_SPEECH = "name both sorts with --talkers URL and --code2wavs URL, or DUET_TALKERS and DUET_CODE2WAVS, or neither"


def connector(settings: Settings) -> tuple[Connector | None, Finding]:
    """None if there is none of that name."""
    try:
        kv = connector_of(settings)
    except ConfigurationError as e:
        fix = "set --connector (DUET_CONNECTOR) to one of them"
        return None, fault(Check.CONNECTOR, e.message, why=REFUSED, do=fix)
    return kv, ok(Check.CONNECTOR, f"{kv.name}, {kv.order.value} legs, KV that nobody fetched lives {kv.lease:g} s")


def engines(settings: Settings, kv: Connector | None) -> tuple[list[Engine], list[Finding]]:
    """Every engine whose URL is one, and what is wrong with the others."""
    found, wrong = named_engines(settings, kv)
    legs = [f"{sum(e.role.serves(leg) for e in found)} {leg.value}" for leg in (Role.PREFILL, Role.DECODE)]
    named = ok(Check.ENGINES, f"engines: {', '.join(legs)}")
    return found, [fault(Check.ENGINES, e.message, why=REFUSED, do=FIX) for e in wrong] or [named]


def speech_engines(settings: Settings) -> tuple[list[Engine], list[Finding]]:
    """The Talkers and Code2Wavs, and what is wrong with how they are named."""
    try:
        return speech_engines_of(settings), []
    except ConfigurationError as e:
        return [], [fault(Check.ENGINES, e.message, why=REFUSED, do=FIX_SPEECH)]
