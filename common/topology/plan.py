"""From a deploy file to a topology that may run: read, split or not, checked."""

from __future__ import annotations

from pathlib import Path

from common.topology.expand import Expansion, expand, unsplit
from common.topology.invariants import check
from common.topology.read import read


def plan(path: Path, *, pd: bool | None = None, platform: str | None = None) -> Expansion:
    """`pd` splits the Thinker (true), leaves it whole (false), or does as the file says: it has a `pd:` block or not.

    `platform` checks for one kind of machine; without it all that the file names are checked. Raises TopologyInvalid
    with every fault, and ConfigurationError for a split by hand that is asked to be none.
    """
    topology = read(path)
    wanted = topology.split is not None if pd is None else pd
    if topology.pair is None and wanted:
        expansion = expand(topology, platform=platform)
    elif pd is False:
        expansion = Expansion(unsplit(topology))
    else:
        expansion = Expansion(topology)
    check(expansion.topology, platform=platform)
    return expansion
