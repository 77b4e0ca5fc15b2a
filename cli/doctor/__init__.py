"""`duet doctor`: what is wrong with an installation, a Redis and a set of engines, why it matters and what to do.

Each check is two functions: one looks (I/O, into a frozen dataclass of facts), one judges (facts into findings, pure).

| module | what is in it |
| --- | --- |
| `finding.py` | a finding, its severity, and the name of every check |
| `machine.py`, `installation.py` | this machine, and what is installed on it |
| `redis.py` | Redis or Valkey: reachable, version, persistence, eviction, latency |
| `engine.py` | one engine, as it answers by itself |
| `pair.py` | a prefill engine beside a decode engine: pure |
| `trial.py` | one request of one token through both legs |
| `speech.py` | the Talkers and Code2Wavs, and whether anything can be spoken: pure |
| `settings.py` | the engines and the connector that the settings name |
| `examine.py` | all of it, concurrently, each check within its time |
| `show.py` | findings for people and for programs |
| `command.py` | the command |
"""
