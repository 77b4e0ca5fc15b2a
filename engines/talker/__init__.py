"""The Talker of Qwen3-Omni as a vLLM model: it reads what the Thinker computed and said, and speaks codec frames.

    Thinker engines ──channel──> inbox ─> scheduler: who may step      POST /v1/speech (endpoint)
                                   └────> model: rows, MTP ─> outbox ──channel──> Code2Wav

| module | what is in it |
| --- | --- |
| `script.py`, `feed.py` | what is read when; pure |
| `conditioning.py`, `inbox.py` | what the Thinker told: put together, and pulled |
| `request.py` | what a request carries through vLLM |
| `reading.py` | rows from ids and hidden states |
| `predictor.py`, `sampling.py` | groups 1 to 15 of a frame |
| `model.py` | the model, on the hooks of `engines/runner` |
| `scheduler.py` | never ahead of the text, and nobody waits for another |
| `cpu.py`, `gpu.py` | its worker |
| `outbox.py`, `worker.py` | codes to the channel, and how their stream ends |
| `ask.py`, `endpoint.py` | the endpoint |
| `utterance.py`, `thinker.py` | one request, from the Thinker's first word to the last frame |
| `downfall.py` | an engine that ends while it is waited for |
| `config.py`, `checkpoint.py`, `__main__.py` | a folder with the Talker alone |
| `launch.py`, `plugin.py`, `names.py`, `errors.py` | how it is started and registered; what can go wrong |
"""

from engines.talker.checkpoint import make_talker, talker_folder

__all__ = ["make_talker", "talker_folder"]
