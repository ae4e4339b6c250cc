"""A shard consumer does not see which publisher reads: the same assertions over either factory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import (
    PublisherContext,
    SequenceNumber,
    ShardProgress,
    ShardRange,
    StartingPosition,
)
from kinesis_publishers.config import PollingConfig, Properties
from kinesis_publishers.engine.range_consumer import RangeConsumer
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeControlPlane,
    FakeDataPlane,
    RecordingSink,
    ShardReader,
    StoredShard,
    assert_shard_is_read,
    deaggregated,
    finish,
    sample_aggregates,
    sample_records,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.fanout.fanout_support import fan_out_factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.abc import RecordPublisherFactory

    MakeFactory = Callable[[FakeDataPlane, ManualClock], RecordPublisherFactory]


def polling_factory(plane: FakeDataPlane, clock: ManualClock) -> PollingRecordPublisherFactory:
    context = PublisherContext(
        data_plane=plane, control_plane=FakeControlPlane(), clock=clock, events=lambda _: None
    )
    config = PollingConfig.from_properties(Properties.parse({}, complete=False))
    return PollingRecordPublisherFactory(config, context)


@pytest.fixture(params=[polling_factory, fan_out_factory], ids=["polling", "fan-out"])
def make_factory(request: pytest.FixtureRequest) -> MakeFactory:
    return request.param


def closed_shard(records: int, *page_ends: int) -> FakeDataPlane:
    shard = StoredShard(sample_records(records), page_ends=page_ends)
    shard.close(SUCCESSOR)
    return FakeDataPlane(shard)


@pytest.mark.parametrize("records", [0, 1, 7, 100])
async def test_a_closed_shard_is_read_to_its_end(make_factory: MakeFactory, records: int):
    clock, plane = ManualClock(), closed_shard(records, 1, 2, 5, 50)
    await assert_shard_is_read(make_factory(plane, clock), sample_records(records), clock=clock)


async def test_reading_begins_where_it_is_told_to(make_factory: MakeFactory):
    held = sample_records(10)
    starts = {
        StartingPosition.at(SequenceNumber(held[4].sequence_number)): 4,
        StartingPosition.after(SequenceNumber(held[4].sequence_number)): 5,
        StartingPosition.at_timestamp(held[6].approximate_arrival_timestamp): 6,
        StartingPosition.trim_horizon(): 0,
    }
    for start, first in starts.items():
        clock = ManualClock()
        factory = make_factory(closed_shard(10, 3, 6, 9), clock)
        await assert_shard_is_read(factory, held[first:], clock=clock, start=start)


async def test_a_range_ends_with_its_last_record(make_factory: MakeFactory):
    held, clock = sample_records(10), ManualClock()
    reader = ShardReader(factory=make_factory(closed_shard(10, 4, 8), clock), clock=clock)
    end = SequenceNumber(held[5].sequence_number)
    wanted = ShardRange(
        shard=sample_shard().key,
        start=StartingPosition.at(SequenceNumber(held[0].sequence_number)),
        end=end,
    )
    consumer = RangeConsumer(wanted, reader.context)
    await finish(consumer.run(), clock)
    assert [one.data for one in reader.sink.records] == [one.data for one in held[:6]]
    assert consumer.processed == end


async def test_what_was_processed_before_is_not_delivered_again(make_factory: MakeFactory):
    held, clock = sample_records(6), ManualClock()
    reader = ShardReader(factory=make_factory(closed_shard(6, 3), clock), clock=clock)
    inside = StartingPosition.at(SequenceNumber(held[2].sequence_number, 5))
    await reader.read(ShardProgress(position=inside))
    assert [one.data for one in reader.sink.records] == [one.data for one in held[2:]]


async def test_a_consumer_that_is_stopped_ends_after_the_delivery_in_flight(
    make_factory: MakeFactory,
):
    clock = ManualClock()

    async def stop(_delivery: object) -> None:
        consumer.stop()

    sink = RecordingSink(stop)
    factory = make_factory(closed_shard(10, *range(1, 10)), clock)
    consumer = ShardReader(factory=factory, clock=clock, sink=sink).consumer()
    await finish(consumer.run(), clock)
    assert len(sink.deliveries) == 1
    assert not consumer.progress.is_ended


async def test_an_error_of_the_application_reaches_the_caller_of_the_consumer(
    make_factory: MakeFactory,
):
    clock, error = ManualClock(), ConnectionError("of the application")

    async def fail(_delivery: object) -> None:
        raise error

    factory = make_factory(closed_shard(3), clock)
    reader = ShardReader(factory=factory, clock=clock, sink=RecordingSink(fail))
    with pytest.raises(ConnectionError) as caught:
        await reader.read()
    assert caught.value is error
    assert reader.pool.records == 0


AGGREGATES = sample_aggregates(4, 3)


def shard_of_aggregates() -> FakeDataPlane:
    shard = StoredShard(AGGREGATES, page_ends=[2])
    shard.close(SUCCESSOR)
    return FakeDataPlane(shard)


@pytest.mark.parametrize("done", range(12))
async def test_reading_goes_on_inside_an_aggregate(
    make_factory: MakeFactory, manual_clock: ManualClock, done: int
) -> None:
    """After each record inside, one is processed and the next one follows, none twice."""
    inside = deaggregated(AGGREGATES)
    last = inside[done]
    position = StartingPosition.at(SequenceNumber(last.sequence_number, last.sub_sequence_number))
    factory = make_factory(shard_of_aggregates(), manual_clock)
    await assert_shard_is_read(factory, inside[done + 1 :], clock=manual_clock, start=position)
