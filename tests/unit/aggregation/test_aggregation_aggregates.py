"""Aggregates on their way through the consumer of a shard."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from kinesis_publishers import PublisherContext, ShardProgress, StartingPosition, UserRecord
from kinesis_publishers.aggregation import deaggregation, decode_aggregate, pack_first
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.config import AggregationMode
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import AggregationError, PositionTrimmedError
from kinesis_publishers.events import AggregatesExpanded, RecordsSkipped, ignore_event
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
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.aggregation.aggregate_samples import (
    AGGREGATES,
    CONTRADICTION,
    INSIDE,
    IS_LOWER,
    LOWER,
    aggregate_of,
    with_data,
    wrapped,
)
from tests.unit.engine.consumer_support import RECORDS, at, place
from tests.unit.readers.fetcher_support import POLLING

if TYPE_CHECKING:
    from kinesis_publishers import Record, Shard


def reader_of(*batches: list[Record], lag: int = 0, **settings: object) -> ShardReader:
    """Return a reader of a shard that delivers ``batches`` and has then ended."""
    runs = [ScriptedRun(batches=[batch_of(one, millis_behind_latest=lag)]) for one in batches]
    return ShardReader(factory=ScriptedPublisherFactory(runs), **settings)


def found(reader: ShardReader) -> list[AggregatesExpanded]:
    return [one for one in reader.events if isinstance(one, AggregatesExpanded)]


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
async def test_reading_continues_inside_an_aggregate(sub: int):
    reader = reader_of(AGGREGATES)
    progress = await reader.read(at(0, sub))
    assert reader.sink.records == INSIDE[sub + 1 :]
    assert progress.position == StartingPosition.after(place(2))
    assert RecordsSkipped(shard=sample_shard().key, records=sub + 1) in reader.events


async def test_the_publisher_continues_after_whole_records_only():
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
        await reader.read(evolve(at(0, 1), as_of=datetime(2026, 6, 1, tzinfo=UTC)))


@pytest.mark.parametrize("mode", [AggregationMode.AUTO, AggregationMode.OFF])
async def test_a_plain_record_that_the_kcl_has_processed_is_not_repeated(mode: AggregationMode):
    reader = reader_of([*RECORDS[:1], *AGGREGATES[1:]], RECORDS[3:4], aggregation=mode)
    await reader.read(at(0, 0))
    aggregates = AGGREGATES[1:] if mode is AggregationMode.OFF else INSIDE[4:]
    assert reader.sink.records == [*aggregates, RECORDS[3]]


async def test_an_aggregate_that_is_not_taken_apart_is_repeated_as_a_whole():
    reader = reader_of(AGGREGATES, aggregation=AggregationMode.OFF)
    await reader.read(at(0, 0))
    assert reader.sink.records == AGGREGATES


@pytest.mark.parametrize("batches", [[RECORDS[2:4]], [[], RECORDS[2:4]]], ids=["busy", "idle"])
async def test_a_record_of_the_kcl_that_the_retention_has_removed_is_no_loss(
    batches: list[list[Record]],
):
    reader = reader_of(*batches)
    progress = await reader.read(at(0, 0))
    assert reader.sink.records == RECORDS[2:4]
    assert progress.position == StartingPosition.after(place(3))


async def test_the_place_of_the_kcl_is_left_at_the_tip_for_nothing_more_comes_of_it():
    reader = reader_of([])
    progress = await reader.read(at(0, 0))
    assert progress.position == StartingPosition.after(place(0))
    assert progress.as_of is not None


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


@pytest.mark.parametrize("mode", [AggregationMode.AUTO, AggregationMode.KPL])
async def test_nothing_is_left_out_once_the_service_is_known_to_choose_shards(
    mode: AggregationMode,
):
    """It is asked when something would be left out that came after the last answer."""
    answers, events = [False, True], []

    async def was_auto(_: str) -> bool:
        return answers.pop(0)

    batch = batch_of(AGGREGATES, shard=LOWER)
    # A subscription begins long before the records come.
    clock = ManualClock(batch.requested_at + timedelta(hours=1))
    until = [clock.now().timestamp()] * len(AGGREGATES)
    aggregates = Deaggregator(mode, events.append, None, was_auto=was_auto, clock=clock)
    later, newer = (
        evolve(batch, arrival_epoch_seconds=one) for one in (until, [until[0] + 1] * len(until))
    )
    left = [len(await aggregates.expand(one, LOWER)) for one in (batch, later)]
    assert left == [IS_LOWER.count(True)] * 2
    assert len(answers) == 1
    for one in (newer, batch):
        assert [one.data for one in await aggregates.expand(one, LOWER)] == [
            one.data for one in INSIDE
        ]
    assert [(one.left_out, one.foreign) for one in events[2:]] == [(0, IS_LOWER.count(False))] * 2


async def test_pages_of_a_stream_that_is_known_to_choose_shards_are_decoded_once(
    monkeypatch: pytest.MonkeyPatch,
):
    decoded: list[bytes] = []

    def decode(payload: bytes) -> object:
        decoded.append(payload)
        return decode_aggregate(payload)

    async def was_auto(_: str) -> bool:
        return True

    monkeypatch.setattr(deaggregation, "decode_aggregate", decode)
    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, None, was_auto=was_auto)
    batch, counts = batch_of(AGGREGATES, shard=LOWER), []
    for _ in range(2):
        assert len(await aggregates.expand(batch, LOWER)) == len(INSIDE)
        counts.append(len(decoded))
    # The first page shows that the stream has to be asked.
    assert counts == [2 * len(AGGREGATES), 3 * len(AGGREGATES)]


async def test_a_record_without_a_key_shows_that_the_service_chose_shards():
    aggregates = Deaggregator(AggregationMode.AUTO, ignore_event, None)
    without = with_data(AGGREGATES[0], b"x")._replace(partition_key=None)
    delivered = await aggregates.expand(batch_of([*AGGREGATES[1:], without], shard=LOWER), LOWER)
    assert [one.data for one in delivered] == [*(one.data for one in INSIDE[4:]), b"x"]


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
async def test_with_kpl_records_of_other_shards_are_left_out_by_their_hash_key(shard: Shard):
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


@pytest.mark.parametrize("mode", ["auto", "kpl", "unfiltered"])
async def test_copies_for_the_kcl_are_left_out_and_counted(mode: str):
    packed = pack_first([(b"%d" % n, "k", None, None, n != 1) for n in range(3)])
    reader = reader_of([with_data(AGGREGATES[0], packed.data)], aggregation=AggregationMode(mode))
    await reader.read(shard=evolve(LOWER, ending_hash_key=str(2**128 - 1)))
    assert [(one.data, one.sub_sequence_number) for one in reader.sink.records] == [(b"1", 1)]
    (event,) = found(reader)
    assert (event.user_records, event.copies, event.left_out) == (3, 2, 0)


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


@pytest.mark.parametrize("is_large", [False, True])
async def test_the_event_loop_runs_while_large_aggregates_are_deaggregated(is_large: bool):
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
