"""How the gateway talks to engines.

| module | what is in it |
| --- | --- |
| `port` | the contract: calls, replies, deadlines |
| `http` | that contract over HTTP/1.1 |
| `patience` | how long a reply is waited for |
| `pool` | connections that are looked at before they are used again |
"""
