"""How the gateway talks to engines.

| module | what is in it |
| --- | --- |
| `port` | the contract: calls, replies, deadlines |
| `http` | that contract over HTTP/1.1 |
| `pool` | connections that are looked at before they are used again |
"""
