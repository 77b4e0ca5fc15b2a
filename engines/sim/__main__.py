"""`python -m engines.sim --port 8100`: one simulated engine. It takes either leg, as a request asks."""

from __future__ import annotations

import argparse

import uvicorn

from engines.sim.app import create_app
from engines.sim.engine import Latency, SimEngine
from engines.sim.server import SimProtocol


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.sim", description="An engine without weights.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on, and to name in handoffs")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--model", default="sim", help="the name that it serves")
    parser.add_argument("--max-model-len", type=int, default=4096, help="tokens of prompt and answer together")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds that KV waits for a consumer")
    parser.add_argument("--end-every", type=int, default=0, help="one in so many tokens ends the answer; 0: none")
    parser.add_argument("--per-prompt-token", type=float, default=0.0, help="seconds of prefill for each token")
    parser.add_argument("--between-tokens", type=float, default=0.0, help="seconds between two tokens")
    parser.add_argument("--per-fetched-token", type=float, default=0.0, help="seconds to fetch a token's KV")
    args = parser.parse_args()
    engine = SimEngine(
        args.model,
        args.host,
        args.port,
        max_model_len=args.max_model_len,
        lease=args.lease,
        end_every=args.end_every,
        latency=Latency(args.per_prompt_token, args.between_tokens, args.per_fetched_token),
    )
    uvicorn.run(create_app(engine), host=args.host, port=args.port, log_level="warning", http=SimProtocol)


if __name__ == "__main__":
    main()
