"""The gateway: an OpenAI face in front, prefill and decode engines behind, and no state of its own.

| room | what lives there |
| --- | --- |
| `lifecycle/` | what a request's life is: states, events, one table (pure) |
| `routing/` | which engines a request goes to (pure) |
| `wire/` | OpenAI bodies and streams, split and put right (pure) |
| `audio/` | sound cut for streams, and in each format (pure) |
| `store/` | where lives are kept, so that any replica can see them: Redis, or memory |
| `transport/` | how engines are called |
| `fleet/` | which engines there are, and which of them answer |
| `dispatch/` | runs a request: the only room that knows the order of things |
| `api/` | endpoints |
| `admin_ui/` | the admin page, as static files |
| `telemetry/` | metrics |
| `settings.py`, `named.py` | every setting; the connector and the engines that they name |
| `bootstrap.py` | wires the parts together; nobody else does |
"""
