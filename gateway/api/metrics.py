"""`/metrics`, in Prometheus's text format."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.api.services import Served

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response)
async def metrics(services: Served) -> Response:
    return Response(services.metrics.exposition(), media_type=services.metrics.content_type)
