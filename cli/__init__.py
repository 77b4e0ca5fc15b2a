"""The command line. One file a command; `main.py` names them, and imports none before it is called.

| command | what it does |
| --- | --- |
| `duet up` | model, Valkey, engines and gateway on this machine, until Ctrl-C |
| `duet gateway` | the gateway alone, in front of engines that run elsewhere |
| `duet engine thinker` | one vLLM engine |
| `duet topology` | what a deploy file says, and whether it can work |
| `duet say` | one answer, streamed to the terminal |
| `duet status` | engines, load and requests of a running gateway, live |
| `duet doctor` | what is wrong with machine, Redis and engines, and what to do about it |
"""
