"""What a fake engine says to GET."""

import asyncio

from fake_words import err


async def page(w, method, p, h, authed):
    e = w.e
    e.seen_get.append([method, p, h.get("authorization")])
    if p in ("/health", "/ping"):
        if e.set["health"] == "hang":
            await asyncio.sleep(600)
        return w.reply(e.set["health"], b"", ctype="text/plain")
    if p == "/v1/models":
        if not authed:
            return w.reply(401, {"error": "Unauthorized"})
        return w.reply(
            200,
            {
                "object": "list",
                "data": [
                    {
                        "id": e.model,
                        "object": "model",
                        "created": 1700000000,
                        "owned_by": "vllm",
                        "root": e.model,
                        "parent": None,
                        "max_model_len": 32768,
                        "permission": [],
                    }
                ],
            },
        )
    if p == "/query":
        return w.reply(
            200,
            {
                "0": {
                    "engine_id": e.engine_id,
                    "worker_addr": {"0": {"0": f"tcp://127.0.0.1:{e.a.port + 1}"}},
                }
            },
        )
    if p == "/version":
        return w.reply(200, {"version": "0.32.0"})
    if p == "/metrics":
        return w.reply(
            200,
            f'vllm:num_requests_running{{model_name="{e.model}"}} {e.stats()["in_flight"]}\nvllm:num_requests_waiting{{model_name="{e.model}"}} 0\n'.encode(),
            ctype="text/plain",
        )
    if p in ("/get_server_info", "/server_info", "/get_model_info", "/model_info"):
        return w.reply(
            200,
            {
                "model_id": e.model,
                "model_path": e.model,
                "served_model_name": e.model,
                "tp_size": 1,
                "dp_size": 1,
                "is_generation": True,
                "version": "0.5.0",
                "disaggregation_mode": e.role,
            },
        )
    if p.startswith("/v1/videos/"):
        v = p.split("/")[3]
        return (
            w.reply(200, {"id": v, "object": "video", "status": "completed"})
            if v in e.videos
            else w.reply(404, err(404, "no such video"))
        )
    return w.reply(404, {"detail": "Not Found"})
