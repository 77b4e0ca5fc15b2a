"""Speech: a Talker and a Code2Wav, driven beside decode's relay, for answers that are wanted as sound too.

    Attempt ── decode ── relay ──────────> Speaking ──> the client
       └── Speech: Talker ──ref──> Code2Wav ─ pcm ─┘

Talker and Code2Wav are asked when decode is: rows go from the Thinker's engines to the Talker, codes from there to
Code2Wav, over the stage channel; what comes here is references, counts and the sound itself.

| module | what is in it |
| --- | --- |
| `ask.py` | what a client asks for, checked |
| `desk.py` | what all spoken requests share; begins each one's speech |
| `talk.py`, `vocode.py` | one call of a Talker; of a Code2Wav |
| `staff.py` | which engines they are, and who comes in the place of one that failed |
| `silence.py` | how long both may be silent |
| `speech.py` | both, through the loss of either: sound in order, each sample once |
| `speaking.py` | what an attempt uses of it: its context, and its relay |
| `streamed.py`, `whole.py` | sound and text as one stream; as one answer |
| `memory.py` | transcripts of answers that later messages refer to |
| `errors.py` | what can go wrong |
"""

from gateway.dispatch.speech.ask import Ask
from gateway.dispatch.speech.desk import Desk
from gateway.dispatch.speech.speaking import Speaking

__all__ = ["Ask", "Desk", "Speaking"]
