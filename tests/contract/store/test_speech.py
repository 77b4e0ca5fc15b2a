"""What a store keeps of spoken answers: the axis beside the state, and what was said."""

from __future__ import annotations

from dataclasses import replace

from gateway.lifecycle import Event, Speech, State, speech_step
from gateway.store.port import Outcome, Store
from tests.contract.store.conftest import Bench
from tests.contract.store.samples import Author, new_record

TTL = 1.0
"""Seconds; waited for where time is real, and long enough to be read before."""


async def test_the_axis_moves_without_the_state(store: Store) -> None:
    record = new_record(speech=Speech.WAITING)
    author = Author(record)
    await store.admit(record, transitions=author.all(Event.PREFILL_SENT, Event.PREFILL_DONE))
    told = {"talker": "t:1", "code2wav": "c:1", "conditioning": ["duet+ipc:///x?request=r&stage=thinker"]}
    await store.apply([author.next(Event.DECODE_SENT, **told)])
    speech = Speech.WAITING
    for event in (Event.SPEECH_STARTED, Event.SPEECH_RESUMED, Event.SPEECH_FAILED):
        speech = speech_step(speech, event)
        fields = {"speech": speech, "timings": {"first_audio": 7.5}}
        (applied,) = await store.apply([author.next(event, **fields)])
        assert (applied.outcome, applied.state) == (Outcome.OK, State.DECODING)
    (ended,) = await store.apply([author.next(Event.COMPLETED)], disown=record.owner)
    assert ended.state is State.FINISHED
    kept = await store.get(record.id)
    assert kept is not None
    assert (kept.speech, kept.talker, kept.code2wav) == (Speech.FAILED, "t:1", "c:1")
    assert kept.conditioning == told["conditioning"]
    assert kept.timings["first_audio"] == 7.5
    events = [row.event for row in await store.events(record.id)]
    assert events[-4:] == ["speech_started", "speech_resumed", "speech_failed", "completed"]


async def test_a_record_without_sound_is_as_it_was(store: Store) -> None:
    record = new_record()
    await store.admit(record)
    assert await store.get(record.id) == replace(record, version=1)


async def test_a_repeated_sound_is_a_no_op_and_a_late_one_changes_nothing(store: Store) -> None:
    record = new_record(speech=Speech.WAITING)
    author = Author(record)
    await store.admit(record, transitions=[author.next(Event.DECODE_SENT)])
    started = author.next(Event.SPEECH_STARTED, speech=Speech.SPEAKING)
    assert [a.outcome for a in await store.apply([started])] == [Outcome.OK]
    assert [a.outcome for a in await store.apply([started])] == [Outcome.DUP]
    late = author.next(Event.SPEECH_DONE, speech=Speech.DONE)
    end = replace(late, op_id="other", event=Event.CANCELLED, to=State.CANCELLED, fields={"speech": Speech.FAILED})
    await store.apply([end])
    assert [a.outcome for a in await store.apply([late])] == [Outcome.CONFLICT]
    kept = await store.get(record.id)
    assert kept is not None
    assert kept.speech is Speech.FAILED


async def test_what_an_answer_said_is_kept_for_its_time(bench: Bench) -> None:
    store = bench.store
    await store.keep_transcript("audio_a", "Grüße, 世界 😀\n", 60)
    await store.keep_transcript("audio_b", "", TTL)
    found = await store.transcripts(["audio_a", "audio_b", "audio_never"])
    assert found == {"audio_a": "Grüße, 世界 😀\n", "audio_b": "", "audio_never": None}
    await bench.wait(TTL + 0.05)
    assert await store.transcripts(["audio_a", "audio_b"]) == {"audio_a": "Grüße, 世界 😀\n", "audio_b": None}
    assert await store.transcripts([]) == {}
