"""What the Thinker tells the Talker of a request, as frames of a stage channel's stream. Both ends read it here.

A stream has what one engine computed of one request: prefill, decode, or an unsplit one. Its frames follow each other
from position 0 on without a gap: an engine knows all ids of a prompt, also where it has its rows from elsewhere.

| rows | dtype, shape | what |
| --- | --- | --- |
| `place` | int64 `[2]` | tokens in the prompt; the position of the frame's first token |
| `ids` | int64 `[n]` | token ids: of the prompt, and behind it those that were said |
| `media_at` | int64 `[m]` | positions with sound or pictures that this engine computed; absent where there are none |
| `media` | model's, `[m, hidden]` | hidden states there, at the layer that the Talker listens to |
| `embedding` | model's, `[c, hidden]` | embeddings of the frame's last c positions; only for models that read them |
| `hidden` | model's, `[c, hidden]` | hidden states of the same; only for models that read them |

c is how many positions of the frame this engine computed. The last sampled id is in no frame: no engine computes a row
for it. It is the end token, or cut off.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.channel.frame import Frame, Rows
from common.errors import DuetError

STAGE = "thinker"
"""The stage in the streams' keys."""
PLACE, IDS, MEDIA_AT, MEDIA, EMBEDDING, HIDDEN = "place", "ids", "media_at", "media", "embedding", "hidden"


class ConditioningInvalid(DuetError):
    """A frame, or the frames of one request together, that cannot be what a Thinker computed."""

    code = "conditioning_invalid"


@dataclass(frozen=True, slots=True)
class Told:
    """A frame as it is read. `rows` are the tensors in it, still as buffers."""

    prompt_len: int
    begin: int
    ids: tuple[int, ...]
    media_at: tuple[int, ...]
    rows: Mapping[str, Rows]

    @property
    def end(self) -> int:
        """The position behind its last."""
        return self.begin + len(self.ids)


def integers(values: Sequence[int]) -> Rows:
    """int64 `[n]`."""
    return Rows.of("int64", (len(values),), array("q", values).tobytes())


def frame_rows(
    prompt_len: int, begin: int, ids: Sequence[int], media_at: Sequence[int] = (), **tensors: Rows
) -> dict[str, Rows]:
    """A frame's rows, as `read` takes them apart."""
    rows = {PLACE: integers((prompt_len, begin)), IDS: integers(ids)}
    if media_at:
        rows[MEDIA_AT] = integers(media_at)
    return {**rows, **tensors}


def read(frame: Frame) -> Told:
    """Raises ConditioningInvalid for rows that are missing or do not fit together."""
    place, ids, media_at = (_integers(frame, name) for name in (PLACE, IDS, MEDIA_AT))
    if len(place) != 2 or min(place) < 0 or not ids:
        raise ConditioningInvalid(
            f"channel frame {frame.index}: {PLACE} is {list(place)}, {IDS} are {len(ids)}: "
            "expected prompt length and first position, and an id or more"
        )
    told = Told(place[0], place[1], ids, media_at, frame.rows)
    outside = [at for at in media_at if not told.begin <= at < told.end]
    if outside:
        raise ConditioningInvalid(
            f"channel frame {frame.index}: {MEDIA_AT} has {outside[:3]}: "
            f"expected positions {told.begin} to {told.end - 1}"
        )
    media = frame.rows.get(MEDIA)
    if (media.shape[:1] if media else (0,)) != (len(media_at),):
        raise ConditioningInvalid(
            f"channel frame {frame.index}: {MEDIA} is {media.shape if media else None}: "
            f"expected [{len(media_at)}, hidden]"
        )
    for name in (EMBEDDING, HIDDEN):
        rows = frame.rows.get(name)
        if rows is not None and (len(rows.shape) != 2 or rows.shape[0] > len(ids)):
            raise ConditioningInvalid(
                f"channel frame {frame.index}: {name} is {rows.shape}: expected at most {len(ids)} rows, [c, hidden]"
            )
    return told


def _integers(frame: Frame, name: str) -> tuple[int, ...]:
    rows = frame.rows.get(name)
    if rows is None:
        return ()
    if rows.dtype != "int64" or len(rows.shape) != 1:
        raise ConditioningInvalid(
            f"channel frame {frame.index}: {name} is {rows.dtype} {rows.shape}: expected int64 [n]"
        )
    return tuple(rows.data.cast("q")) if rows.data.nbytes else ()
