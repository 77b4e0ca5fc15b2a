"""`python -m engines.sim --port 8100`: one simulated engine. It takes either leg, as a request asks."""

from __future__ import annotations

import argparse

import uvicorn

from engines.sim.app import create_app
from engines.sim.engine import Latency, SimEngine
from engines.sim.server import SimProtocol


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m engines.sim", description="An engine without weights.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--model", default="sim")
    parser.add_argument("--lease", type=float, default=30.0, help="seconds that KV waits for a consumer")
    parser.add_argument("--per-prompt-token", type=float, default=0.0, help="seconds of prefill for each token")
    parser.add_argument("--between-tokens", type=float, default=0.0, help="seconds between two tokens")
    args = parser.parse_args()
    latency = Latency(args.per_prompt_token, args.between_tokens)
    engine = SimEngine(args.model, args.host, args.port, lease=args.lease, latency=latency)
    uvicorn.run(create_app(engine), host=args.host, port=args.port, log_level="warning", http=SimProtocol)


if __name__ == "__main__":
    main()
