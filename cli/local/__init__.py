"""Everything on one machine, as `duet up` runs it.

`plan.py` says what is started and how, `checklist.py` shows how far it has come, `supervise.py` starts it, watches it
and ends it, `hello.py` is what is printed when it is ready.
"""
