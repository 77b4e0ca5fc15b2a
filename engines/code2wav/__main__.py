"""`python -m engines.code2wav MODEL --port 8400`: speaks the codec frames of a Qwen3-Omni's Talker."""

from __future__ import annotations

import argparse
import logging
import signal
from contextlib import suppress
from pathlib import Path

import uvicorn

from common.engine import Role
from common.registry.process import announce
from engines.code2wav.app import create_app
from engines.code2wav.batcher import Limits
from engines.code2wav.chunker import Plan
from engines.code2wav.ending import UVICORN, not_unfinished
from engines.code2wav.identity import identity_of, key_of_environment
from engines.code2wav.vocoder import Vocoder

log = logging.getLogger("engines.code2wav")
STREAMS_MAY_END = 5
"""Seconds that running answers have after SIGTERM."""


def main() -> None:
    plan, limits = Plan(), Limits()
    parser = argparse.ArgumentParser(prog="python -m engines.code2wav", description="Codec frames to audio.")
    parser.add_argument("model", type=Path, help="the folder of a whole Qwen3-Omni")
    parser.add_argument("--served-name", default=None, help="the model's name [the folder's]")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    parser.add_argument("--port", type=int, default=8400)
    parser.add_argument("--device", default=None, help="cpu, cuda or cuda:1 [a GPU if torch sees one]")
    parser.add_argument(
        "--dtype", default=None, choices=["float32", "bfloat16"], help="[float32 on cpu, else bfloat16]"
    )
    parser.add_argument("--first-chunk", type=int, default=plan.first, help="frames of 80 ms before the first sound")
    parser.add_argument("--chunk", type=int, default=plan.chunk, help="frames of each chunk after it")
    parser.add_argument(
        "--left-context",
        type=int,
        default=plan.left,
        help="frames decoded again before each chunk [%(default)s, as upstream has it]; the sound is that of one full "
        "pass only if they are as many as a sample depends on, which is 578 for Qwen3-Omni and costs as much more work",
    )
    parser.add_argument("--max-batch", type=int, default=limits.requests, help="chunks decoded together")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # uvicorn ends in order, and then raises the signal that ended it again
        _serve(args, limits)


def _serve(args: argparse.Namespace, limits: Limits) -> None:
    model = args.served_name or args.model.resolve().name
    plan = Plan(args.first_chunk, args.chunk, args.left_context)
    vocoder = Vocoder.load(args.model, device=args.device or _device(), dtype=args.dtype)
    if plan.left < vocoder.lookback:
        log.warning(
            "--left-context is %d frames, and a sample depends on %d: the sound differs from that of one full pass, as "
            "upstream's own chunks do; from --left-context %d on it is equal, and each chunk is that much more work",
            plan.left,
            vocoder.lookback,
            vocoder.lookback,
        )
    app = create_app(vocoder, plan, Limits(args.max_batch, limits.frames), model=model, api_key=key_of_environment())
    announce(Role.CODE2WAV, identity_of(model))
    logging.getLogger(UVICORN).addFilter(not_unfinished)
    uvicorn.run(app, host=args.host, port=args.port, log_level="warning", timeout_graceful_shutdown=STREAMS_MAY_END)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    main()
