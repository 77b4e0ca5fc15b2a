"""What is printed when everything runs: lines to paste, so they begin at the left margin."""

from __future__ import annotations

from pathlib import Path

from cli.local.model import Model

QUESTION = "What is the capital of France?"


def hello(url: str, model: Model, logs: Path, *, keyed: bool = False) -> str:
    """`keyed` says that clients need a key; the lines take it from DUET_API_KEY."""
    speech = [f'Speech: duet say "{QUESTION}" --url {url} -o answer.wav{_bound(model)}'] if model.speaks else []
    return "\n".join(
        [
            "",
            "Ready. To try it:",
            "",
            *_curl(url, model.name, keyed),
            "",
            "In Python, with the package openai:",
            "",
            *_python(url, model.name, keyed),
            "",
            f'Or: duet say "{QUESTION}" --url {url}',
            *speech,
            "",
            f"Page      {url}/admin/ui",
            f"Engines   {url}/admin/topology",
            f"Requests  {url}/admin/requests",
            f"Logs      {logs}",
            "",
            "Ctrl-C ends everything.",
        ]
    )


def _bound(model: Model) -> str:
    """Random weights seldom say that they have ended."""
    return " --max-frames 100" if model.maker is not None else ""


def _curl(url: str, model: str, keyed: bool) -> list[str]:
    return [
        f"curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\",
        *(['  -H "authorization: Bearer $DUET_API_KEY" \\'] if keyed else []),
        f"""  -d '{{"model": "{model}", "stream": true, "max_tokens": 64,""",
        f"""       "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'""",
    ]


def _python(url: str, model: str, keyed: bool) -> list[str]:
    key = 'os.environ["DUET_API_KEY"]' if keyed else '"none"'
    return [
        *(["import os"] if keyed else []),
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{url}/v1", api_key={key})',
        f'messages = [{{"role": "user", "content": "{QUESTION}"}}]',
        f'stream = client.chat.completions.create(model="{model}", messages=messages, max_tokens=64, stream=True)',
        "for chunk in stream:",
        '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
    ]
