"""`duet topology`: what a deploy file says, before anything of it is started.

| module | what is in it |
| --- | --- |
| `command` | the command line of `expand`, `check` and `show` |
| `graph` | stages and what goes between them |
| `draw` | that graph in the terminal, and as Mermaid |
"""
