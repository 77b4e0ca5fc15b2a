"""`duet engine`: one engine, in this process's place.

| module | what is in it |
| --- | --- |
| `thinker.py`, `talker.py`, `code2wav.py` | the commands |
| `options.py` | what their flags have in common |
| `rules.py` | the rules of a deploy file, as far as one engine can be held to them |
"""

from __future__ import annotations

import typer

from cli.engine.code2wav import code2wav
from cli.engine.options import TO_VLLM
from cli.engine.talker import talker
from cli.engine.thinker import thinker

app = typer.Typer(help="Run one engine.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def engine() -> None:
    """Run one engine."""


app.command("thinker", **TO_VLLM)(thinker)
app.command("talker", **TO_VLLM)(talker)
app.command("code2wav")(code2wav)
