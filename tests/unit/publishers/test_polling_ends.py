"""An answer without an iterator is the end of a shard only if a second witness says so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import RunResult, StartingPosition
from kinesis_publishers.errors import (
    AccessDeniedError,
    InternalServiceError,
    LimitExceededError,
    RetriesExhaustedError,
)
from kinesis_publishers.events import CallRetried
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    Answer,
    FakeControlPlane,
    FakeStream,
    RecordingConsumer,
    StoredShard,
    sample_records,
    sample_shard,
)
from tests.unit.publishers.polling_support import POLICY, Polling

if TYPE_CHECKING:
    from kinesis_publishers.model import Shard

RECORDS = sample_records(30)
OPEN, CLOSED = sample_shard(), sample_shard(is_closed=True)


class LosesIterators(StoredShard):
    """Claims an end that is none in the answers of the given numbers, counted from 0."""

    def __init__(self, *claims: int, lag: int = 1000, **how: object) -> None:
        super().__init__(list(RECORDS), page_ends=(10, 20), millis_behind_latest=lag, **how)
        self.claims = claims
        self.reads = 0

    async def read(self, index: int, limit: int) -> Answer:
        answer = await super().read(index, limit)
        self.reads += 1
        if self.reads - 1 not in self.claims:
            return answer
        return Answer(
            records=answer.records,
            next_index=None,
            millis_behind_latest=answer.millis_behind_latest,
        )


def control_of(*listed: Shard, errors: tuple[Exception | None, ...] = ()) -> FakeControlPlane:
    return FakeControlPlane(FakeStream(list(listed)), errors=errors)


def failure(kind: type[Exception]) -> Exception:
    return kind("ListShards failed", operation="ListShards", code=kind.__name__)


async def test_an_open_shard_is_read_on_from_the_position_when_an_answer_has_no_iterator():
    polling = Polling.of(LosesIterators(0, 1), control=control_of(OPEN))
    consumer = RecordingConsumer()
    assert set(await polling.run(consumer, times=3)) == {RunResult.INCOMPLETE}
    assert consumer.records == RECORDS
    assert [call.position for call in polling.plane.iterator_calls][1:] == [
        StartingPosition.after(consumer.batches[0].last_sequence_number),
        StartingPosition.after(consumer.batches[1].last_sequence_number),
    ]


async def test_an_end_that_is_none_keeps_the_starting_position_while_nothing_was_read():
    start = StartingPosition.at_timestamp(RECORDS[0].approximate_arrival_timestamp)
    polling = Polling.of(StoredShard(is_closed=True), start=start, control=control_of(OPEN))
    assert await polling.run(RecordingConsumer(), times=2) == [RunResult.INCOMPLETE] * 2
    assert [call.position for call in polling.plane.iterator_calls] == [start] * 2


async def test_an_end_that_is_none_is_warned_of_and_reported(caplog: pytest.LogCaptureFixture):
    polling = Polling.of(LosesIterators(0, 1), control=control_of(OPEN))
    with caplog.at_level(logging.WARNING):
        await polling.run(RecordingConsumer(), times=3)
    (warning,) = caplog.messages
    assert warning.startswith("GetRecords of orders/shardId-000000000000")
    assert "ListShards does not show the shard as closed" in warning
    assert [(one.code, one.shard) for one in polling.events_of(CallRetried)] == [
        ("EndNotConfirmed", OPEN.key)
    ] * 2


async def test_a_server_that_never_sends_an_iterator_makes_no_hot_loop():
    polling = Polling.of(LosesIterators(*range(999)), control=control_of(OPEN))
    await polling.run(RecordingConsumer(), times=50)
    assert polling.clock.monotonic() >= 10
    assert len(polling.control.list_calls) == 50


async def test_an_answer_that_names_child_shards_is_the_end_without_a_question():
    shard = StoredShard(list(RECORDS), is_closed=True, child_shards=(SUCCESSOR,))
    polling = Polling.of(shard, control=control_of(OPEN))
    assert await polling.run(RecordingConsumer()) == [RunResult.COMPLETE]
    assert polling.control.list_calls == []


async def test_a_shard_that_is_listed_as_closed_has_ended_without_child_shards():
    """Some emulators never send child shards."""
    polling = Polling.of(StoredShard(list(RECORDS), is_closed=True), control=control_of(CLOSED))
    assert await polling.run(RecordingConsumer()) == [RunResult.COMPLETE]
    assert len(polling.control.list_calls) == 1


async def test_a_shard_that_was_closed_when_it_was_listed_is_not_asked_for():
    shard = StoredShard(list(RECORDS), is_closed=True)
    polling = Polling.of(shard, shard=CLOSED, control=control_of())
    assert await polling.run(RecordingConsumer()) == [RunResult.COMPLETE]
    assert polling.control.list_calls == []


async def test_a_closed_shard_is_read_on_if_the_answer_says_that_records_follow():
    shard = LosesIterators(0, 1, is_closed=True)
    polling, consumer = Polling.of(shard, shard=CLOSED), RecordingConsumer()
    assert await polling.run(consumer, times=3) == [
        RunResult.INCOMPLETE,
        RunResult.INCOMPLETE,
        RunResult.COMPLETE,
    ]
    assert consumer.records == RECORDS


async def test_a_closed_shard_whose_lag_never_falls_ends_all_the_same():
    """As with servers that measure the lag against the wall clock."""

    class OldShard(StoredShard):
        async def read(self, index: int, limit: int) -> Answer:
            answer = await super().read(index, limit)
            return Answer(
                records=answer.records, next_index=answer.next_index, millis_behind_latest=99
            )

    shard, consumer = OldShard(list(RECORDS), is_closed=True), RecordingConsumer()
    polling = Polling.of(shard, shard=CLOSED)
    assert await polling.run(consumer, times=2) == [RunResult.INCOMPLETE, RunResult.COMPLETE]
    assert consumer.records == RECORDS


async def test_a_shard_that_is_not_listed_is_asked_for_again():
    """If it has left the retention, the service refuses the position."""
    polling = Polling.of(StoredShard(list(RECORDS), is_closed=True), control=control_of())
    assert await polling.run(RecordingConsumer()) == [RunResult.INCOMPLETE]
    polling.control.streams[0].add(CLOSED)
    assert await polling.run(RecordingConsumer()) == [RunResult.COMPLETE]


async def test_a_listing_that_fails_is_repeated_and_the_end_is_found():
    errors = (failure(InternalServiceError),) * POLICY.max_retries
    errors += (failure(LimitExceededError),) * 20
    shard, consumer = StoredShard(list(RECORDS), is_closed=True), RecordingConsumer()
    polling = Polling.of(shard, control=control_of(CLOSED, errors=errors))
    while await polling.run_once(consumer) is not RunResult.COMPLETE:
        pass
    assert consumer.records == RECORDS
    assert polling.clock.monotonic() >= len(errors) * 0.2


@pytest.mark.parametrize(
    ("error", "raised"),
    [(InternalServiceError, RetriesExhaustedError), (AccessDeniedError, AccessDeniedError)],
)
async def test_a_listing_that_keeps_failing_fails_like_any_call(
    error: type[Exception], raised: type[Exception]
):
    shard = StoredShard(list(RECORDS), is_closed=True)
    polling = Polling.of(shard, control=control_of(CLOSED, errors=(failure(error),) * 9))
    with pytest.raises(raised, match="ListShards failed"):
        await polling.run(RecordingConsumer(), times=9)
