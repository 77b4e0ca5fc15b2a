"""Endpoints. The two paths that carry traffic are raw ASGI, everything else is FastAPI.

asgi.Gateway ── POST /v1/chat/completions, /v1/completions ──> hot.HotPath ──> dispatch
      └──────── everything else, and the lifespan ──────────> app (FastAPI)
"""
