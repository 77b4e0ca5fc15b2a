"""Where the lives of requests are kept, so that any replica can see them and none of them is lost with one.

| module | what is in it |
| --- | --- |
| `port.py` | what a store must do |
| `redis.py` | in Redis or Valkey; `lua/` has one file a script, `scripts.py` finds them |
| `memory.py` | in memory, for one gateway alone |
| `keys.py` | every key's name |
| `codec.py` | a record as a flat hash |
| `reaper.py` | leases, and closing what a dead gateway left |
"""
