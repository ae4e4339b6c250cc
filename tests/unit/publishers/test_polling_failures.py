"""What polling does when the service refuses, fails, or has removed what is asked for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kinesis_publishers import RunResult, SequenceNumber, StartingPosition
from kinesis_publishers.config.retries import RecoverableErrors
from kinesis_publishers.errors import (
    AccessDeniedError,
    EncryptionKeyError,
    InternalServiceError,
    InvalidArgumentError,
    IteratorExpiredError,
    PositionTrimmedError,
    RetriesExhaustedError,
    ServiceError,
    StreamNotFoundError,
)
from kinesis_publishers.events import IteratorReplaced
from kinesis_publishers.testing.fakes import (
    Answer,
    FailingCalls,
    RecordingConsumer,
    ShardBehaviour,
    StoredShard,
    sample_records,
    throttled,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.publishers.polling_support import Polling, failure

DAY_MILLIS = 86_400_000
RECORDS = sample_records(3)
AFTER_FIRST = StartingPosition.after(SequenceNumber(RECORDS[0].sequence_number))
AT_FIRST = StartingPosition.at(SequenceNumber(RECORDS[0].sequence_number))
INSIDE_FIRST = StartingPosition.at(SequenceNumber(RECORDS[0].sequence_number, 3))


class EmptyAnswers(ShardBehaviour):
    """Answers without records, with the given lags; the last one is repeated."""

    def __init__(self, *lags: int | None, is_ended: bool = False) -> None:
        self.lags = list(lags)
        self.is_ended = is_ended

    async def locate(self, position: StartingPosition) -> int:
        return 0

    async def read(self, index: int, limit: int) -> Answer:
        lag = self.lags.pop(0) if len(self.lags) > 1 else self.lags[0]
        return Answer(next_index=None if self.is_ended else 0, millis_behind_latest=lag)


async def test_throttling_is_backed_off_and_never_fails_however_often_it_happens():
    polling, consumer = Polling.of(throttled(200)), RecordingConsumer()
    assert await polling.run_within(consumer, seconds=600) is RunResult.COMPLETE
    assert len(consumer.records) == 10
    assert polling.clock.monotonic() > 60


@pytest.mark.parametrize("kind", [AccessDeniedError, EncryptionKeyError, StreamNotFoundError])
async def test_a_permanent_error_fails_at_once(kind: type[ServiceError]):
    polling = Polling.of(FailingCalls(StoredShard(RECORDS), on_read=(failure(kind),)))
    with pytest.raises(kind):
        await polling.publisher.run(RecordingConsumer())
    assert len(polling.plane.records_calls) == 1
    assert polling.clock.sleeps == []


async def test_a_service_that_keeps_failing_exhausts_the_retries():
    failures = (failure(InternalServiceError),) * 99
    polling = Polling.of(FailingCalls(StoredShard(RECORDS), on_read=failures))
    with pytest.raises(RetriesExhaustedError, match="GetRecords failed 4 times"):
        await polling.run(RecordingConsumer())


async def test_iterators_that_always_expire_make_no_hot_loop():
    expiries = (failure(IteratorExpiredError),) * 20
    polling = Polling.of(FailingCalls(StoredShard(RECORDS), on_read=expiries))
    await polling.run(RecordingConsumer())
    assert len(polling.events_of(IteratorReplaced)) == 20
    assert polling.clock.monotonic() >= 20 * 0.2


async def test_a_sequence_number_that_the_service_does_not_know_is_trimmed():
    shard = FailingCalls(StoredShard(), on_locate=(failure(InvalidArgumentError),))
    with pytest.raises(PositionTrimmedError, match="AFTER_SEQUENCE_NUMBER 991") as caught:
        await Polling.of(shard, start=AFTER_FIRST).publisher.run(RecordingConsumer())
    assert isinstance(caught.value.__cause__, InvalidArgumentError)
    assert "orders/shardId-000000000000" in str(caught.value)


async def test_an_argument_that_is_refused_without_a_sequence_number_is_not_taken_for_trimming():
    shard = FailingCalls(StoredShard(), on_locate=(failure(InvalidArgumentError),))
    with pytest.raises(InvalidArgumentError):
        await Polling.of(shard).publisher.run(RecordingConsumer())


@pytest.mark.parametrize("start", [AFTER_FIRST, AT_FIRST, INSIDE_FIRST], ids=str)
async def test_empty_answers_with_the_lag_stuck_at_the_retention_are_a_trimmed_position(
    start: StartingPosition,
):
    polling = Polling.of(EmptyAnswers(DAY_MILLIS), start=start)
    consumer = RecordingConsumer()
    with pytest.raises(PositionTrimmedError, match="lag stuck at 86400000 ms"):
        await polling.run(consumer, times=99)
    assert len(consumer.batches) == 10


@pytest.mark.parametrize(
    "lags",
    [
        [DAY_MILLIS + (-1) ** at * 500 for at in range(99)],
        [DAY_MILLIS - at * 90 for at in range(99)],
        [DAY_MILLIS + at * 200 for at in range(99)],
    ],
    ids=["back and forth", "drifting", "growing"],
)
async def test_a_lag_that_jitters_is_still_stuck(lags: list[int]):
    polling, consumer = Polling.of(EmptyAnswers(*lags), start=AFTER_FIRST), RecordingConsumer()
    with pytest.raises(PositionTrimmedError):
        await polling.run(consumer, times=99)
    assert len(consumer.batches) == 10


async def test_a_lag_that_has_shrunk_once_is_watched_from_there():
    lags = [DAY_MILLIS] * 8 + [DAY_MILLIS - 1001]
    polling, consumer = Polling.of(EmptyAnswers(*lags), start=AFTER_FIRST), RecordingConsumer()
    with pytest.raises(PositionTrimmedError):
        await polling.run(consumer, times=99)
    assert len(consumer.batches) == 18


@pytest.mark.parametrize(
    ("start", "lags"),
    [
        (AFTER_FIRST, [DAY_MILLIS - at * 101 for at in range(99)]),
        (AFTER_FIRST, [DAY_MILLIS - at * 1000 for at in range(99)]),
        (AFTER_FIRST, [0]),
        (AFTER_FIRST, [None]),
        (AFTER_FIRST, [3_600_000]),
        (StartingPosition.trim_horizon(), [DAY_MILLIS]),
    ],
    ids=[
        "lag shrinks slowly",
        "lag shrinks",
        "at the tip",
        "lag unknown",
        "lag below the retention",
        "no number",
    ],
)
async def test_other_empty_answers_are_not_taken_for_trimming(
    start: StartingPosition, lags: list[int | None]
):
    consumer = RecordingConsumer()
    await Polling.of(EmptyAnswers(*lags), start=start).run(consumer, times=40)
    assert len(consumer.batches) == 40


async def test_records_in_between_show_that_the_position_is_not_trimmed():
    class NowAndThen(StoredShard):
        reads = 0

        async def read(self, index: int, limit: int) -> Answer:
            self.reads += 1
            found = self.records[index : index + 1] if self.reads % 9 == 0 else []
            return Answer(
                records=found, next_index=index + len(found), millis_behind_latest=DAY_MILLIS
            )

    polling, consumer = Polling.of(NowAndThen(RECORDS), start=AFTER_FIRST), RecordingConsumer()
    await polling.run(consumer, times=26)
    assert consumer.records == RECORDS[1:]


async def test_empty_answers_from_trim_horizon_do_not_lead_back_to_a_trimmed_position():
    """The consumer answers every batch with the record before the trimmed ones."""

    class KnowsTrimmedPosition(RecordingConsumer):
        async def __call__(self, batch):
            await super().__call__(batch)
            return AFTER_FIRST.sequence_number

    shard = FailingCalls(StoredShard(), on_read=(None, None, failure(IteratorExpiredError)))
    polling = Polling.of(shard)
    await polling.run(KnowsTrimmedPosition(), times=3)
    positions = [call.position for call in polling.plane.iterator_calls]
    assert positions == [StartingPosition.trim_horizon()] * 2


@pytest.mark.parametrize("seconds", [-3600, 3600])
async def test_an_instant_that_clocks_do_not_explain_is_refused(seconds: int):
    refusals = (failure(InvalidArgumentError, "GetShardIterator"),)
    start = StartingPosition.at_timestamp(ManualClock().now() + timedelta(seconds=seconds))
    polling = Polling.of(FailingCalls(StoredShard(RECORDS), on_locate=refusals), start=start)
    with pytest.raises(InvalidArgumentError):
        await polling.publisher.run(RecordingConsumer())
    assert polling.clock.sleeps == []


NAMED = RecoverableErrors.parse(["AccessDeniedError", "ConnectionResetError"])


def caused_by_reset(operation: str) -> ServiceError:
    error = failure(InvalidArgumentError, operation)
    error.__cause__ = ConnectionResetError("reset")
    return error


@pytest.mark.parametrize(
    "error", [lambda name: failure(AccessDeniedError, name), caused_by_reset], ids=["code", "cause"]
)
async def test_what_the_user_calls_recoverable_never_fails(error):
    shard = FailingCalls(
        StoredShard(RECORDS),
        on_locate=(error("GetShardIterator"),) * 20,
        on_read=(error("GetRecords"),) * 20,
    )
    polling, consumer = Polling.of(shard, recoverable_errors=NAMED), RecordingConsumer()
    await polling.run_within(consumer, seconds=600)
    assert consumer.records == RECORDS
