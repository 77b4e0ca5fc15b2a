"""Audio as clients want it, out of the s16le that Code2Wav sends. Pure: bytes in, bytes out.

| module | what is in it |
| --- | --- |
| `formats.py` | the formats of OpenAI's API, and what HTTP calls them |
| `pcm.py` | samples cut for a stream, so that their base64 can be joined |
| `encode.py` | whole audio in each format |
"""

from gateway.audio.encode import encode
from gateway.audio.formats import Format, format_of
from gateway.audio.pcm import Cutter, seconds

__all__ = ["Cutter", "Format", "encode", "format_of", "seconds"]
