"""Everything on one machine, as `duet up` runs it.

| module | what is in it |
| --- | --- |
| `model.py`, `plan.py`, `from_file.py`, `engines.py`, `ports.py` | what is started, and how; nothing runs yet |
| `checklist.py` | how far it has come, on the terminal |
| `supervise.py`, `signals.py` | starts it, watches it, and ends it |
| `hello.py` | what is printed when it is ready |
"""
