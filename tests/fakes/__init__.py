"""Stand-ins that behave, rather than mocks that record.

| module | what it stands in for |
| --- | --- |
| `clock` | time |
| `script` | what an engine answers, in words that the two below play |
| `engine_client` | an `EngineClient` without a network |
| `engine_server` | an engine behind a socket, to the byte |
| `scripted` | prefill and decode engines that say what a test wrote, tool calls too; `engine_server` plays it |
"""
