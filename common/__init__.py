"""What the gateway and the engines both stand on.

| module | what is in it |
| --- | --- |
| `errors` | the error tree; every error knows its HTTP status and OpenAI code |
| `ids`, `clock` | identifiers and time, injected everywhere |
| `phase` | the contract between runner and model: which rows are prompt, which are decode |
| `engine` | what an engine is: its role, its address, its identity |
| `connectors/` | one file a KV connector, behind one contract |
| `topology/` | a deploy file: three stages or four, refused when it cannot work |
| `channel/`, `merge` | rows from one engine to the next; both sides of a split joined to one |
| `tasks` | ending background tasks |
| `process/` | child processes that end with their parent |
| `valkey` | an embedded Valkey for a gateway that was given no Redis |
| `cache`, `scratch`, `ports` | where prepared models are kept, what is nobody's after a run; free ports |
"""
