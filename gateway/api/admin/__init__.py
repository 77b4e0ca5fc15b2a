"""What an operator asks and orders. Every answer is the same on every replica, but for what says `replica`.

| module | what is in it |
| --- | --- |
| `topology.py` | the graph: stages, engines, edges with their traffic (`../traffic.py` counts it) |
| `engines.py` | one engine; drain, undrain, add, remove |
| `requests.py` | who is served, pages of them, one request's life, cancel; `timeline.py` draws its spans |
| `events.py` | what happens, as server-sent events (`../streams.py` bounds them) |
| `config.py` | settings as they were resolved |
| `page.py` | `/admin/ui` |
| `described.py` | errors and examples for the API's description |

Reading takes the admin key, or a client's where no admin key is set; changing takes the admin key (`auth.py`).
"""

from __future__ import annotations

from fastapi import APIRouter, Depends

from gateway.api.admin import config, engines, events, page, requests, topology
from gateway.api.services import admin_only

router = APIRouter(prefix="/admin", tags=["admin"])
for _room in (topology, engines, requests, events, config):
    router.include_router(_room.router, dependencies=[Depends(admin_only)])
router.include_router(page.router)  # the page itself holds no secret; what it asks for wants the key
