"""Aggregates on their way through the consumer of a shard and of a range."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import PublisherContext, ShardProgress, StartingPosition, UserRecord
from kinesis_publishers.aggregation import RecordAggregator
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import AggregationError, PositionTrimmedError, ShardNotFoundError
from kinesis_publishers.events import AggregatesExpanded, RecordsSkipped, ignore_event
from kinesis_publishers.model import hash_key_of
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    ScriptedPublisherFactory,
    ScriptedRun,
    ShardReader,
    assert_shard_is_read,
    batch_of,
    deaggregated,
    finish,
    records_in_calls,
    sample_aggregates,
    sample_shard,
)
from tests.unit.core.consumer_support import RECORDS, at, place, run_of
from tests.unit.core.fetcher_support import POLLING
from tests.unit.core.range_support import RangeWorld, range_of

if TYPE_CHECKING:
    from kinesis_publishers import Record, Shard
    from kinesis_publishers.testing.manual_clock import ManualClock

AGGREGATES = sample_aggregates(3, 4)
INSIDE = deaggregated(AGGREGATES)
# A child of a split, which has the lower half of the hash keys.
LOWER = evolve(sample_shard(1, parent=0), ending_hash_key=str(2**127 - 1))
IS_LOWER = [hash_key_of(one.partition_key) < 2**127 for one in INSIDE]


def reader_of(*batches: list[Record], lag: int = 0, **settings: object) -> ShardReader:
    """Return a reader of a shard that delivers ``batches`` and has then ended."""
    runs = [ScriptedRun(batches=[batch_of(one, millis_behind_latest=lag)]) for one in batches]
    return ShardReader(factory=ScriptedPublisherFactory(runs), **settings)


def found(reader: ShardReader) -> list[AggregatesExpanded]:
    return [one for one in reader.events if isinstance(one, AggregatesExpanded)]


def range_world(listed: Shard | None = None) -> RangeWorld:
    """Return a world whose shard holds the aggregates, and is listed as ``listed``."""
    runs = [ScriptedRun(batches=[batch_of(AGGREGATES)])]
    world = RangeWorld(factory=ScriptedPublisherFactory(runs))
    world.reader = evolve(world.reader, listed_shards=(listed or sample_shard(),))
    return world


def with_data(record: Record, data: bytes) -> Record:
    return record._replace(data=data)


def wrapped(message: bytes) -> bytes:
    """Return ``message`` as an aggregate with the right checksum."""
    return bytes.fromhex("f3899ac2") + message + hashlib.md5(message).digest()


async def test_the_records_inside_are_delivered_in_their_order_with_their_own_keys():
    reader = reader_of([RECORDS[0], *AGGREGATES[1:]])
    progress = await reader.read()
    assert reader.sink.records == [RECORDS[0], *INSIDE[4:]]
    first = reader.sink.records[1]
    assert (first.sub_sequence_number, first.aggregated) == (0, True)
    assert (first.partition_key, first.data) == ("key-1-0", b"key-1-0: data")
    assert progress.position == StartingPosition.after(place(2))
    assert found(reader) == [
        AggregatesExpanded(
            shard=sample_shard().key, aggregates=2, user_records=8, left_out=0, corrupt=0
        )
    ]


async def test_a_shard_without_aggregates_is_delivered_as_it_came():
    reader = reader_of(RECORDS)
    await reader.read()
    (delivery,) = reader.sink.deliveries
    assert delivery.batch.sub_sequence_numbers is None
    assert found(reader) == []


async def test_with_aggregation_off_aggregates_are_delivered_whole():
    reader = reader_of(AGGREGATES, aggregation=AggregationMode.OFF)
    await reader.read()
    assert reader.sink.records == AGGREGATES


@pytest.mark.parametrize("sub", range(4))
async def test_reading_goes_on_inside_an_aggregate(sub: int):
    reader = reader_of(AGGREGATES)
    progress = await reader.read(at(0, sub))
    assert reader.sink.records == INSIDE[sub + 1 :]
    assert progress.position == StartingPosition.after(place(2))
    assert RecordsSkipped(shard=sample_shard().key, records=sub + 1) in reader.events


async def test_the_publisher_goes_on_after_whole_records_only():
    reader = reader_of(AGGREGATES[:2], AGGREGATES[2:])
    await reader.read(at(0, 1))
    (publisher,) = reader.factory.publishers
    assert reader.factory.positions == [StartingPosition.at(place(0, 1))]
    assert publisher.processed == [place(1), place(2)]


async def test_a_position_at_the_last_record_inside_delivers_nothing_twice():
    reader = reader_of(AGGREGATES[:1], AGGREGATES[1:])
    await reader.read(at(0, 3))
    assert reader.sink.records == INSIDE[4:]


async def test_a_position_at_a_record_is_left_once_it_has_come_though_nothing_is_delivered():
    key = next(one.partition_key for one, low in zip(INSIDE, IS_LOWER, strict=True) if not low)
    only_foreign = with_data(AGGREGATES[0], aggregate_of(UserRecord(data=b"", partition_key=key)))
    reader = reader_of([only_foreign], RECORDS[1:3])
    await reader.read(at(0), shard=LOWER)
    assert reader.sink.records == RECORDS[1:3]


async def test_the_rest_of_an_aggregate_that_is_gone_is_lost_data():
    reader = reader_of(AGGREGATES[1:])
    with pytest.raises(PositionTrimmedError, match=f"record {place(0)} is gone"):
        await reader.read(at(0, 1))


async def test_what_belongs_to_another_shard_is_left_out_one_by_one_and_counted(
    caplog: pytest.LogCaptureFixture,
):
    reader = reader_of(AGGREGATES)
    await reader.read(shard=LOWER)
    expected = [one for one, is_lower in zip(INSIDE, IS_LOWER, strict=True) if is_lower]
    delivered = [one._replace(shard_id=INSIDE[0].shard_id) for one in reader.sink.records]
    assert 0 < len(expected) < len(INSIDE)
    assert [(one.data, one.sub_sequence_number) for one in delivered] == [
        (one.data, one.sub_sequence_number) for one in expected
    ]
    (event,) = found(reader)
    assert (event.user_records, event.left_out) == (12, 12 - len(expected))
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    assert "kinesis.aggregation = unfiltered" in caplog.text


async def test_what_belongs_to_another_shard_is_delivered_where_the_outer_key_is_not_the_kpls():
    aggregates = [one._replace(partition_key="key-0-0") for one in AGGREGATES]
    reader = reader_of(aggregates)
    await reader.read(shard=LOWER)
    assert [one.data for one in reader.sink.records] == [one.data for one in INSIDE]
    (event,) = found(reader)
    assert (event.left_out, event.foreign) == (0, IS_LOWER.count(False))


async def test_an_explicit_hash_key_that_is_none_comes_through_where_nothing_is_left_out():
    packed = aggregate_of(UserRecord(data=b"", partition_key="k", explicit_hash_key="7"))
    damaged = wrapped(packed[4:-16].replace(b"\x12\x017", b"\x12\x01x"))
    reader = reader_of([with_data(RECORDS[0], damaged)])
    await reader.read(shard=LOWER)
    (event,) = found(reader)
    assert (event.user_records, event.left_out, event.foreign) == (2, 0, 0)


@pytest.mark.parametrize("shard", [LOWER, evolve(LOWER, parent_shard_id=None)])
async def test_with_kpl_records_of_other_shards_are_left_out_of_any_producer(shard: Shard):
    aggregates = [one._replace(partition_key="key-0-0") for one in AGGREGATES]
    reader = reader_of(aggregates, aggregation=AggregationMode.KPL)
    await reader.read(shard=shard)
    expected = [one.data for one, is_lower in zip(INSIDE, IS_LOWER, strict=True) if is_lower]
    assert [one.data for one in reader.sink.records] == expected


@pytest.mark.parametrize(
    ("mode", "shard"),
    [
        (AggregationMode.UNFILTERED, LOWER),
        # Without parents nothing was resharded: what is foreign there was put without regard.
        (AggregationMode.AUTO, evolve(LOWER, parent_shard_id=None)),
    ],
    ids=["unfiltered", "without parents"],
)
async def test_nothing_is_left_out_where_nothing_is_put_twice(mode: AggregationMode, shard: Shard):
    reader = reader_of(AGGREGATES, aggregation=mode)
    await reader.read(shard=shard)
    assert [one.data for one in reader.sink.records] == [one.data for one in INSIDE]


async def test_a_delivery_of_which_everything_is_left_out_moves_no_position():
    foreign = evolve(LOWER, starting_hash_key="0", ending_hash_key="0")
    start = ShardProgress(position=StartingPosition.at_timestamp(datetime(2026, 1, 1, tzinfo=UTC)))
    reader = reader_of(AGGREGATES, [])
    progress = await reader.read(start, shard=foreign)
    assert reader.sink.deliveries == []
    assert progress.position == start.position
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0)


async def test_the_progress_covers_a_last_record_of_which_nothing_was_delivered():
    key = next(one.partition_key for one, low in zip(INSIDE, IS_LOWER, strict=True) if not low)
    only_foreign = with_data(AGGREGATES[2], aggregate_of(UserRecord(data=b"", partition_key=key)))
    reader = reader_of([RECORDS[0], RECORDS[1], only_foreign])
    progress = await reader.read(shard=LOWER)
    assert len(reader.sink.records) == 2
    assert progress.position == StartingPosition.after(place(2))


async def test_a_corrupt_aggregate_is_an_ordinary_record_and_counted(
    caplog: pytest.LogCaptureFixture,
):
    corrupt = with_data(AGGREGATES[1], AGGREGATES[1].data[:-1])
    reader = reader_of([AGGREGATES[0], corrupt], [corrupt._replace(sequence_number="5000")])
    await reader.read()
    assert reader.sink.records[:5] == [*INSIDE[:4], corrupt]
    assert [one.corrupt for one in found(reader)] == [1, 1]
    assert len(caplog.records) == 1


# A record that names the partition key 5 of none.
CONTRADICTION = bytes.fromhex("1a0408051a00")


async def test_an_aggregate_that_contradicts_itself_is_an_ordinary_record_and_counted(
    caplog: pytest.LogCaptureFixture,
):
    broken = with_data(AGGREGATES[1], wrapped(CONTRADICTION))
    reader = reader_of([AGGREGATES[0], broken, AGGREGATES[2]])
    await reader.read()
    assert reader.sink.records == [*INSIDE[:4], broken, *INSIDE[8:]]
    assert [one.is_undecoded_aggregate for one in reader.sink.records].index(True) == 4
    assert [(one.aggregates, one.corrupt) for one in found(reader)] == [(2, 1)]
    assert len(caplog.records) == 1
    assert f"record {place(1)}: a sub-record names a partition key" in caplog.text


@pytest.mark.parametrize(
    "data",
    [wrapped(CONTRADICTION), wrapped(CONTRADICTION)[:-1]],
    ids=["contradiction", "wrong checksum"],
)
async def test_with_fail_an_invalid_aggregate_stops_the_reading_after_what_stands_before_it(
    data: bytes,
):
    reader = reader_of([*AGGREGATES[:2], with_data(AGGREGATES[2], data)], fails_on_invalid=True)
    consumer = reader.consumer()
    with pytest.raises(AggregationError, match=f"shardId-0+: record {place(2)}:"):
        await finish(consumer.run(), reader.clock)
    assert reader.sink.records == INSIDE[:8]
    progress = consumer.progress
    assert progress.position == StartingPosition.after(place(1))
    assert progress.as_of == AGGREGATES[1].approximate_arrival_timestamp
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0)


async def test_with_fail_a_range_is_read_up_to_an_invalid_aggregate():
    broken = with_data(AGGREGATES[2], wrapped(CONTRADICTION))
    runs = [ScriptedRun(batches=[batch_of([*AGGREGATES[:2], broken])])]
    world = RangeWorld(factory=ScriptedPublisherFactory(runs))
    world.reader = evolve(world.reader, fails_on_invalid=True)
    with pytest.raises(AggregationError, match=f"record {place(2)}:"):
        await world.read(range_of(0, 2, at=True))
    assert world.sink.records == INSIDE[:8]


async def test_an_explicit_hash_key_that_is_none_makes_an_ordinary_record_of_a_kpl_aggregate():
    packed = aggregate_of(UserRecord(data=b"", partition_key="k", explicit_hash_key="7"))
    damaged = with_data(AGGREGATES[0], wrapped(packed[4:-16].replace(b"\x12\x017", b"\x12\x01x")))
    reader = reader_of([damaged])
    await reader.read(shard=LOWER)
    assert [one.data for one in reader.sink.records] == [damaged.data]
    assert [one.corrupt for one in found(reader)] == [1]


async def test_an_explicit_hash_key_that_is_none_comes_through_where_none_is_looked_at():
    packed = aggregate_of(UserRecord(data=b"", partition_key="k", explicit_hash_key="7"))
    damaged = wrapped(packed[4:-16].replace(b"\x12\x017", b"\x12\x01x"))
    reader = reader_of([with_data(RECORDS[0], damaged)])
    await reader.read()
    assert {one.explicit_hash_key for one in reader.sink.records} == {"x"}


@pytest.mark.parametrize(("asked", "reserved"), [(2, 8), (4, 16), (6, 16), (250, 250)])
async def test_room_is_asked_for_as_many_records_as_come_out_but_at_most_twice_the_last(
    asked: int, reserved: int
):
    """Two aggregates with four records each came the last time."""
    consumer = (reader := reader_of(AGGREGATES[:2])).consumer()
    await consumer(batch_of(AGGREGATES[:2]))
    await consumer.wait_for_space(asked, 100)
    assert (reader.pool.records, reader.pool.payload_bytes) == (reserved, 100)


async def test_a_shard_with_small_records_in_aggregates_leaves_room_for_others():
    """A publisher asks for 250 records after a page of one."""
    (large,) = sample_aggregates(1, 3000)
    # The default size.
    pool = PendingPool(max_records=200_000, max_bytes=64 * 1024**2)
    reader = reader_of([large], pool=pool)
    consumer = reader.consumer()
    await consumer(batch_of([large]))
    await consumer.wait_for_space(250, 100)
    assert reader.pool.try_acquire(10_000, 100) is not None


async def test_a_range_is_taken_apart_like_a_shard():
    world = range_world()
    await world.read(range_of(0, 1))
    assert world.sink.records == INSIDE[4:8]
    assert world.reader.listings == [sample_shard().stream_arn]


async def test_the_shards_are_listed_once_for_ranges_that_meet_aggregates_at_the_same_time():
    listings: list[str] = []

    async def list_shards(stream_arn: str) -> tuple[Shard, ...]:
        listings.append(stream_arn)
        await asyncio.sleep(0)
        return (sample_shard(0), sample_shard(1))

    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, list_shards)
    batches = [batch_of(AGGREGATES, shard=sample_shard(number)) for number in (0, 1, 0, 1)]
    found = await asyncio.gather(*(aggregates.expand(one, None) for one in batches))
    assert [len(one) for one in found] == [12] * 4
    assert listings == [sample_shard().stream_arn]


async def test_the_shards_of_a_stream_that_was_created_again_are_listed_again():
    old = evolve(sample_shard(0, parent=7), starting_hash_key="0", ending_hash_key="0")
    listings = [(old,), (sample_shard(0),)]

    async def list_shards(stream_arn: str) -> tuple[Shard, ...]:
        return listings.pop(0)

    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, list_shards)
    batch = batch_of(AGGREGATES)
    for seconds, delivered in ((0, 0), (60, 0), (61, 12), (121, 12)):
        later = evolve(batch, requested_at=batch.requested_at + timedelta(seconds=seconds))
        assert len(await aggregates.expand(later, None)) == delivered


@pytest.mark.parametrize("is_large", [False, True])
async def test_the_event_loop_goes_on_while_large_aggregates_are_deaggregated(is_large: bool):
    """A small one is not worth a thread."""
    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, None)
    batch = batch_of(sample_aggregates(1, 20_000 if is_large else 100))
    for work in (aggregates.expand(batch, sample_shard()), aggregates.counts(batch)):
        task, turns = asyncio.ensure_future(work), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert (turns > 2) == is_large
        await task
    assert await aggregates.counts(batch) == [20_000 if is_large else 100]


async def test_the_shards_are_not_listed_for_a_range_without_aggregates():
    world = RangeWorld(factory=ScriptedPublisherFactory([run_of((1, 3))]))
    await world.read(range_of(0, 2))
    assert world.reader.listings == []


async def test_a_range_leaves_out_what_the_shard_leaves_out():
    lower = evolve(sample_shard(parent=7), ending_hash_key=str(2**127 - 1))
    world = range_world(lower)
    await world.read(range_of(0, 2, at=True))
    expected = [one for one, is_lower in zip(INSIDE, IS_LOWER, strict=True) if is_lower]
    assert world.sink.records == expected


async def test_a_range_of_a_shard_that_is_not_listed_any_more_is_an_error():
    world = range_world(sample_shard(7))
    with pytest.raises(ShardNotFoundError, match="no longer listed"):
        await world.read(range_of(0, 2, at=True))


@pytest.mark.parametrize(("per_batch", "children", "batches"), [(1, 2, 1), (3, 5, 4)])
async def test_pages_of_aggregates_are_read_by_polling(
    manual_clock: ManualClock, per_batch: int, children: int, batches: int
):
    events: list[object] = []
    context = PublisherContext(
        data_plane=records_in_calls(sample_aggregates(per_batch * batches, children), batches),
        control_plane=FakeControlPlane(),
        clock=manual_clock,
        events=events.append,
    )
    factory = PollingRecordPublisherFactory(POLLING, context)
    expected = deaggregated(sample_aggregates(per_batch * batches, children))
    assert len(expected) == per_batch * children * batches
    reader = await assert_shard_is_read(factory, expected, clock=manual_clock)
    assert len(reader.sink.deliveries) == batches


def aggregate_of(*records: UserRecord) -> bytes:
    """Return an aggregate of ``records``, of a single one too: twice, as no producer does."""
    aggregator = RecordAggregator()
    for record in records if len(records) > 1 else records * 2:
        aggregator.add(record)
    packed = aggregator.flush()
    assert packed is not None
    return packed.data
