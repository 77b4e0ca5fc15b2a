"""The engines: real vLLM, started the way a split needs it, and what stands in for models and engines in tests.

| room | what lives there |
| --- | --- |
| `compat/` | the one place that heals what does not work out of the box on CPUs |
| `runner/` | the phase contract: our runner and workers on stock vLLM, its plugins |
| `thinker/` | vLLM as prefill, decode or unsplit engine: command line, environment, readiness |
| `code2wav/` | the vocoder server: codec frames to audio |
| `tiny/` | tiny random-weight models, made on the spot: text, and a whole Qwen3-Omni |
| `smollm2/` | SmolLM2-135M-Instruct out of a package: real weights without a model hub |
| `sim/` | an engine without weights that has vLLM's HTTP face |
| `channel.py` | an engine's end of the stage channel |
| `answering.py` | what endpoints of speech have in common |
| `models.py` | model folders: made whole, and once |
"""
