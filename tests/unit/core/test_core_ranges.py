"""Exact ranges of one shard: the same records each time, or an error."""

from __future__ import annotations

import pytest
from consumer_support import RECORDS, after, at, place, reader_of, run_of

from kinesis_publishers.errors import PositionTrimmedError, ReplayMismatchError
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.testing.fakes import ScriptedPublisherFactory, ShardReader


def losses(reader: ShardReader) -> list[str]:
    return [one.message for one in reader.events if isinstance(one, DataLossTolerated)]


@pytest.mark.parametrize(
    "runs",
    [
        [run_of((2, 10), lag=5)],
        [run_of((2, 4), lag=5), run_of((4, 10), lag=5)],
        [run_of((2, 7), lag=5)],
        [run_of((2, 7))],
        [run_of((2, 2), lag=5), run_of((2, 5), (5, 8), lag=5)],
        [run_of((0, 10))],
    ],
    ids=["more follows", "two answers", "exact", "at the tip", "empty first", "more before"],
)
async def test_a_range_is_cut_at_its_end_to_the_record(runs: list):
    reader = reader_of(*runs)
    progress = await reader.read(after(1), end=place(6))
    assert reader.sink.records == RECORDS[2:7]
    assert progress.processed == place(6)
    assert not progress.is_ended


async def test_reading_stops_as_soon_as_the_range_is_complete():
    reader = reader_of(run_of((2, 7), lag=5), run_of((7, 10), lag=5))
    consumer = reader.consumer(after(1), end=place(6))
    await consumer.run()
    assert reader.sink.records == RECORDS[2:7]
    assert len(reader.sink.statuses) == 1


async def test_a_publisher_that_goes_on_after_the_range_is_ended_with_it():
    """A subscription would deliver for minutes more."""
    reader = reader_of(run_of((2, 5), (5, 7), (7, 10), lag=5))
    await reader.read(after(1), end=place(6))
    assert reader.sink.records == RECORDS[2:7]
    assert len(reader.sink.statuses) == 2


async def test_a_range_may_end_where_the_shard_ends():
    reader = reader_of(run_of((2, 10)))
    await reader.read(after(1), end=place(9))
    assert reader.sink.records == RECORDS[2:]


async def test_a_range_that_begins_at_a_record_contains_it():
    reader = reader_of(run_of((2, 10)))
    await reader.read(at(2), end=place(4))
    assert reader.sink.records == RECORDS[2:5]


async def test_an_empty_range_delivers_nothing():
    reader = reader_of(run_of((5, 10), lag=5))
    await reader.read(after(4), end=place(4))
    assert reader.sink.records == []


async def test_a_missing_last_record_is_a_mismatch():
    without_last = [run_of((2, 6), (7, 8), lag=5)]
    with pytest.raises(ReplayMismatchError, match="record 998 follows"):
        await reader_of(*without_last).read(after(1), end=place(6))


async def test_reaching_the_tip_before_the_end_is_a_mismatch():
    with pytest.raises(ReplayMismatchError, match="the tip of the shard follows"):
        await reader_of(run_of((2, 5), lag=0)).read(after(1), end=place(6))


async def test_a_shard_that_ends_before_the_range_is_a_mismatch():
    with pytest.raises(ReplayMismatchError, match="the end of the shard follows"):
        await reader_of(run_of((2, 5), lag=5)).read(after(1), end=place(6))


async def test_a_trimmed_first_record_is_an_error():
    with pytest.raises(PositionTrimmedError, match="record 993 is gone"):
        await reader_of(run_of((4, 10), lag=5)).read(at(2), end=place(6))


async def test_a_trimmed_position_is_an_error_in_a_range():
    trimmed = run_of(error=PositionTrimmedError("trimmed"))
    with pytest.raises(PositionTrimmedError, match="AFTER_SEQUENCE_NUMBER 992, is not available"):
        await reader_of(trimmed).read(after(1), end=place(6))


async def test_tolerated_loss_in_a_range_delivers_what_is_left():
    factory = ScriptedPublisherFactory(
        [run_of(error=PositionTrimmedError("trimmed"))], [run_of((4, 10), lag=5)]
    )
    reader = ShardReader(factory=factory, fails_on_data_loss=False)
    await reader.read(at(2), end=place(6))
    assert reader.sink.records == RECORDS[4:7]
    assert losses(reader)


async def test_a_tolerated_mismatch_ends_the_range():
    reader = reader_of(run_of((2, 5), lag=0), fails_on_data_loss=False)
    progress = await reader.read(after(1), end=place(6))
    assert reader.sink.records == RECORDS[2:5]
    assert len(losses(reader)) == 1
    assert progress.processed == place(4)


async def test_a_tolerated_mismatch_is_reported_once_when_the_shard_ends_with_it():
    reader = reader_of(run_of((2, 5), lag=5), fails_on_data_loss=False)
    await reader.read(after(1), end=place(6))
    assert len(losses(reader)) == 1


async def test_nobody_asks_for_the_retention_while_a_range_is_read():
    reader = reader_of(run_of((2, 10), lag=5))
    await reader.read(after(1, as_of=RECORDS[0].approximate_arrival_timestamp), end=place(6))
    assert reader.retention_questions == []
