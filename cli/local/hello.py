"""What is printed when everything runs: lines to paste."""

from __future__ import annotations

from pathlib import Path


def hello(url: str, model: str, logs: Path) -> str:
    return f"""
Ready. Try:

  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "{model}", "stream": true, "max_tokens": 64,
         "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'

or in Python, with the package openai:

  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="none")
  for chunk in client.chat.completions.create(model="{model}", stream=True, max_tokens=64,
          messages=[{{"role": "user", "content": "What is the capital of France?"}}]):
      print(chunk.choices[0].delta.content or "", end="", flush=True)

or: duet say "What is the capital of France?" --url {url}

Engines   {url}/admin/topology
Requests  {url}/admin/requests
Logs      {logs}

Ctrl-C ends everything.
"""
