"""One deploy file, three stages or four, refused when it cannot work.

    file ──document──> values with lines ──validate──> the schema's ──read──> Topology
                                                                                  │ expand (three to four)
                       engines to start <──launch── Topology <──invariants────────┘
                                  a file again <──write──┘

| module | what is in it |
| --- | --- |
| `plan` | all of it in one call |
| `document` | YAML as plain values, and the line of each |
| `schema`, `validate`, `names` | what a file may say; errors with line, path and the nearest known key |
| `pipelines` | which stages there are, who feeds whom, what leaves for the client |
| `topology` | the value that all others pass on |
| `read`, `detect`, `wire` | from a document to that value; which two stages are a split |
| `expand` | the Thinker split in two, and notes of what that changed |
| `devices`, `kv` | device sets; the KV connector of a split |
| `invariants`, `sides`, `stage_rules`, `placement_rules` | what must be true, a message for each |
| `launch`, `flags` | engines to start, as values; vLLM's command line, read again |
| `alone` | the rules for one engine whose partner is not known yet |
| `write` | YAML and JSON |
| `fault` | what is wrong, where, and what to do |
"""

from common.topology.expand import Expansion, Note
from common.topology.fault import Fault, FileUnreadable, TopologyInvalid
from common.topology.launch import EnginePlan, engines
from common.topology.plan import plan
from common.topology.sides import Side, check_pair
from common.topology.topology import Topology

__all__ = [
    "EnginePlan",
    "Expansion",
    "Fault",
    "FileUnreadable",
    "Note",
    "Side",
    "Topology",
    "TopologyInvalid",
    "check_pair",
    "engines",
    "plan",
]
