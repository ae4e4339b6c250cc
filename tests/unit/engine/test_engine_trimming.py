"""What the retention has removed: loss where there is one, and only there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kinesis_publishers import Delivery, ShardProgress, StartingPosition
from kinesis_publishers.errors import InvalidArgumentError, PositionTrimmedError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing.fakes import (
    RecordingSink,
    ScriptedPublisherFactory,
    ScriptedRun,
    ShardReader,
    batch_of,
    sample_records,
)
from tests.unit.engine.consumer_support import RECORDS, after, at, reader_of, run_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TRIM_HORIZON = StartingPosition.trim_horizon()
TRIMMED = run_of(error=PositionTrimmedError("orders: trimmed"))


def losses(reader: ShardReader) -> list[str]:
    return [one.message for one in reader.events if isinstance(one, DataLossTolerated)]


def two_publishers(*second: ScriptedRun, **settings: object) -> ShardReader:
    """Return a reader whose first publisher finds its position trimmed."""
    return ShardReader(factory=ScriptedPublisherFactory([TRIMMED], second), **settings)


async def test_a_trimmed_shard_that_was_idle_continues_from_trim_horizon():
    reader = two_publishers(run_of((5, 10)))
    progress = await reader.read(after(4, as_of=NOW - timedelta(hours=1)))
    assert reader.factory.positions == [after(4).position, TRIM_HORIZON]
    assert reader.sink.records == RECORDS[5:]
    assert losses(reader) == []
    assert progress.is_ended


async def test_continuing_from_trim_horizon_repeats_nothing():
    reader = two_publishers(run_of((2, 8)), run_of((8, 10)))
    await reader.read(after(4, as_of=NOW - timedelta(hours=1)))
    assert reader.sink.records == RECORDS[5:]


async def test_a_trimmed_position_of_unknown_age_is_loss():
    reader = two_publishers(run_of((5, 10)))
    with pytest.raises(PositionTrimmedError, match="995, is no longer available") as caught:
        await reader.read(after(4))
    # What the service says: the position may belong to another stream.
    assert "(orders: trimmed)" in str(caught.value)
    assert "kinesis.failondataloss" in str(caught.value)


async def test_tolerated_loss_continues_with_what_is_left():
    reader = two_publishers(run_of((7, 10)), fails_on_data_loss=False)
    progress = await reader.read(after(4))
    assert reader.sink.records == RECORDS[7:]
    assert len(losses(reader)) == 1
    assert progress.is_ended


async def test_a_position_that_is_trimmed_in_the_middle_of_reading_goes_on_too():
    runs = [run_of((0, 3)), TRIMMED]
    reader = ShardReader(factory=ScriptedPublisherFactory(runs, [run_of((1, 10))]))
    await reader.read()
    assert reader.sink.records == RECORDS
    assert losses(reader) == []


async def test_a_trim_horizon_that_is_trimmed_is_an_error_and_no_endless_loop():
    reader = reader_of(TRIMMED)
    with pytest.raises(PositionTrimmedError, match="orders: trimmed"):
        await reader.read()
    assert len(reader.factory.positions) == 1


async def test_progress_older_than_the_retention_is_loss_before_anything_is_read():
    reader = reader_of(run_of((5, 10)))
    with pytest.raises(PositionTrimmedError, match="24 hours"):
        await reader.read(after(4, as_of=NOW - 2 * DAY))
    assert reader.factory.positions == []


async def test_tolerated_old_progress_is_read_on():
    reader = reader_of(run_of((5, 10)), fails_on_data_loss=False)
    await reader.read(after(4, as_of=NOW - 2 * DAY))
    assert reader.sink.records == RECORDS[5:]
    assert losses(reader)


async def test_an_idle_shard_that_was_read_has_lost_nothing():
    """Days pass without a record, but every answer was at the tip."""
    days = [ScriptedRun(batches=[batch_of([], requested_at=NOW + at * DAY / 2)]) for at in range(9)]
    late = [one._replace(arrival_epoch_seconds=(NOW + 4 * DAY).timestamp()) for one in RECORDS]
    last = ScriptedRun(batches=[batch_of(late[5:], requested_at=NOW + 4 * DAY)])
    reader = reader_of(*days, last)
    await reader.read(after(4, as_of=NOW))
    assert reader.sink.records == late[5:]


async def test_records_that_were_removed_while_the_application_was_busy_are_loss():
    """Two deliveries two days apart, the second not known to follow the first."""
    early = ScriptedRun(batches=[batch_of(RECORDS[:3], requested_at=NOW, millis_behind_latest=9)])
    left = sample_records(3, first=7, arrival=NOW + 1.5 * DAY)
    late = ScriptedRun(batches=[batch_of(left, requested_at=NOW + 2 * DAY)])
    reader = reader_of(early, late)
    with pytest.raises(PositionTrimmedError, match="may have been removed unread"):
        await reader.read()
    assert reader.sink.records == RECORDS[:3]


async def test_the_service_is_not_asked_for_the_retention_while_reading_keeps_up():
    reader = reader_of(*(run_of((at, at + 1)) for at in range(10)))
    await reader.read()
    assert reader.control_plane.describe_calls == []


async def test_a_gap_is_loss_however_recent_the_position_is():
    start = ShardProgress(position=at(2).position, as_of=NOW)
    reader = ShardReader(factory=ScriptedPublisherFactory([run_of((4, 10))], [run_of((4, 10))]))
    with pytest.raises(PositionTrimmedError, match="record 993 is gone"):
        await reader.read(start)
    assert reader.sink.records == []


async def test_an_error_of_the_application_is_not_taken_for_trimming():
    error = PositionTrimmedError("of the application")

    async def fails(delivery: Delivery) -> None:
        raise error

    reader = reader_of(run_of((5, 10)), sink=RecordingSink(fails))
    with pytest.raises(PositionTrimmedError) as caught:
        await reader.read(after(4, as_of=NOW))
    assert caught.value is error


async def test_a_record_that_reading_should_begin_at_is_delivered():
    reader = reader_of(run_of((2, 10)))
    await reader.read(at(2))
    assert reader.sink.records == RECORDS[2:]


async def test_another_error_is_not_taken_for_trimming():
    error = InvalidArgumentError("no", operation="GetShardIterator", code="InvalidArgument")
    reader = reader_of(run_of(error=error))
    with pytest.raises(InvalidArgumentError):
        await reader.read(after(4, as_of=NOW))
    assert len(reader.factory.positions) == 1


async def test_a_shard_from_an_instant_has_nothing_to_lose():
    reader = reader_of(run_of((0, 10)))
    start = ShardProgress(position=StartingPosition.at_timestamp(NOW - 30 * DAY))
    await reader.read(start)
    assert reader.sink.records == RECORDS
