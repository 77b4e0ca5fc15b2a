"""Where the lives of requests are kept, so that any replica can see them and none of them is lost with one.

| module | what is in it |
| --- | --- |
| `port.py` | what a store must do |
| `redis.py` | in Redis or Valkey; `lua/` has one file a script, `scripts.py` finds them |
| `client.py` | one round trip to it: connections, repeats, lost scripts, errors |
| `memory.py` | in memory, for one gateway alone |
| `feed.py` | what every write tells the feed |
| `board.py` | the feed and operators' orders, in Redis |
| `keys.py` | every key's name |
| `codec.py` | a record as a flat hash |
| `steps.py` | transitions as both stores apply them |
| `reaper.py` | leases, and closing what a dead gateway left |
"""
