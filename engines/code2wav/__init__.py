"""Code2Wav: codec frames in over the stage channel, 24 kHz audio out over HTTP, while the frames are still being made.

    codes --channel--> Chunker -> Batcher (all requests) -> Vocoder -> s16le --HTTP, chunked--> gateway

| module | what is in it |
| --- | --- |
| `geometry.py` | how many samples so many frames give, from the model's configuration; pure |
| `chunker.py` | when to decode what with how much context, and which samples of it to keep; pure |
| `codes.py` | codec frames to and from the channel's rows |
| `vocoder.py` | the model |
| `batcher.py` | one decode for what several requests have ready |
| `app.py`, `__main__.py`, `launch.py` | the server, and how it is started |
| `ending.py` | how calls end that come to no good end |
| `identity.py` | who it is, and who may ask it |
| `metrics.py`, `errors.py` | what it counts; what can go wrong |

However it is cut, chunks join without a lost or repeated sample, also when a second server takes over in mid-speech
(`from_sample`). It is the audio of one full pass where the left context reaches as far back as samples depend on
(`Vocoder.lookback`); with less it differs.
"""
