"""The loop over one shard: positions, deliveries, cancellation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from kinesis_publishers import Delivery, RunResult, ShardProgress, StartingPosition
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.errors import AccessDeniedError, ClosedError, PublisherCancelledError
from kinesis_publishers.events import RecordsProcessed, RecordsSkipped, ShardEnded, ShardStarted
from kinesis_publishers.testing.fakes import (
    RecordingSink,
    ScriptedPublisherFactory,
    ScriptedRun,
    batch_of,
    finish,
    sample_records,
    sample_shard,
)
from tests.unit.engine.consumer_support import RECORDS, after, at, place, reader_of, run_of

START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_shard_is_read_to_its_end_and_marked_as_ended():
    reader = reader_of(run_of((0, 4)), run_of((4, 10)))
    progress = await reader.read()
    assert reader.sink.records == RECORDS
    assert progress.is_ended
    assert progress.position == StartingPosition.after(place(9))
    assert reader.events == [
        ShardStarted(shard=sample_shard().key, position=StartingPosition.trim_horizon()),
        RecordsProcessed(shard=sample_shard().key, records=4, payload_bytes=40, seconds=0.0),
        RecordsProcessed(shard=sample_shard().key, records=6, payload_bytes=60, seconds=0.0),
        ShardEnded(shard=sample_shard().key),
    ]


async def test_each_delivery_carries_the_progress_that_includes_it():
    reader = reader_of(run_of((0, 4)), run_of((4, 10)))
    await reader.read()
    positions = [one.progress.position for one in reader.sink.deliveries]
    assert positions == [StartingPosition.after(place(3)), StartingPosition.after(place(9))]


async def test_the_publisher_is_told_what_was_processed():
    reader = reader_of(run_of((0, 0), (0, 4), (4, 4)))
    await reader.read()
    (publisher,) = reader.factory.publishers
    assert publisher.processed == [None, place(3), place(3)]


async def test_the_publisher_begins_where_progress_says():
    reader = reader_of(run_of((5, 6)))
    await reader.read(after(4))
    assert reader.factory.positions == [StartingPosition.after(place(4))]


async def test_empty_answers_are_observed_and_not_delivered():
    reader = reader_of(run_of((0, 0), lag=7))
    await reader.read()
    assert reader.sink.deliveries == []
    assert reader.sink.statuses[0].millis_behind_latest == 7
    assert reader.sink.statuses[-1].progress.is_ended


async def test_empty_answers_move_no_position():
    start = ShardProgress(position=StartingPosition.at_timestamp(START))
    reader = reader_of(run_of((0, 0), (0, 0)))
    progress = await reader.read(start)
    assert progress.position == start.position


async def test_an_empty_answer_at_the_tip_renews_the_instant_up_to_which_all_was_read():
    reader = reader_of(ScriptedRun(batches=[batch_of([], requested_at=START + timedelta(hours=1))]))
    progress = await reader.read(after(3, as_of=START))
    assert progress.as_of == START + timedelta(hours=1)


@pytest.mark.parametrize("lag", [1, None])
async def test_an_answer_behind_the_tip_proves_only_what_it_holds(lag: int | None):
    later = START + timedelta(hours=1)
    batch = batch_of(RECORDS[:3], requested_at=later, millis_behind_latest=lag)
    progress = await reader_of(ScriptedRun(batches=[batch])).read()
    assert progress.as_of == RECORDS[2].approximate_arrival_timestamp


async def test_the_instant_up_to_which_all_was_read_never_goes_back():
    reader = reader_of(run_of((0, 3), lag=5))
    late = START + timedelta(hours=9)
    start = ShardProgress(position=StartingPosition.trim_horizon(), as_of=late)
    assert (await reader.read(start)).as_of == late


async def test_records_that_were_processed_already_are_dropped():
    reader = reader_of(run_of((0, 3)), run_of((2, 6)), run_of((1, 10)))
    await reader.read()
    assert reader.sink.records == RECORDS
    skipped = [one.records for one in reader.events if isinstance(one, RecordsSkipped)]
    assert skipped == [1, 5]


async def test_a_batch_of_which_all_was_processed_already_moves_nothing():
    reader = reader_of(run_of((0, 5)), run_of((1, 4)))
    progress = await reader.read()
    assert len(reader.sink.deliveries) == 1
    assert progress.processed == place(4)
    assert reader.pool.records == 0


async def test_a_restart_inside_an_aggregate_keeps_its_place_while_nothing_comes():
    place_inside = evolve(at(4, sub=2), as_of=datetime(2026, 6, 1, tzinfo=UTC))
    progress = await reader_of(run_of((0, 0))).read(place_inside)
    assert progress.position == StartingPosition.at(place(4, sub=2))


async def test_position_follows_the_sink_and_not_the_fetch():
    gate = asyncio.Event()

    async def blocks(delivery: Delivery) -> None:
        await gate.wait()

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(blocks))
    consumer = reader.consumer()
    running = asyncio.create_task(consumer.run())
    await reader.clock.settle()
    assert consumer.status.is_delivering
    assert consumer.progress.processed is None
    gate.set()
    await running
    assert not consumer.status.is_delivering
    assert consumer.progress.processed == place(3)


async def test_cancelling_during_a_delivery_gives_the_pool_back_and_moves_nothing():
    async def blocks(delivery: Delivery) -> None:
        await asyncio.Event().wait()

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(blocks))
    consumer = reader.consumer()
    running = asyncio.create_task(consumer.run())
    await reader.clock.settle()
    assert reader.pool.records == 4
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0)
    assert consumer.progress.processed is None
    assert not consumer.status.is_delivering


async def test_an_error_of_the_sink_comes_through_and_moves_nothing():
    async def fails(delivery: Delivery) -> None:
        raise LookupError("the application")

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(fails))
    consumer = reader.consumer()
    with pytest.raises(LookupError, match="the application"):
        await consumer.run()
    assert reader.pool.records == 0
    assert consumer.progress.processed is None


async def test_a_sink_may_keep_its_share_of_the_pool():
    reader = reader_of(run_of((0, 4)), run_of((4, 5)), sink=RecordingSink(release=False))
    await reader.read()
    assert (reader.pool.records, reader.pool.payload_bytes) == (5, 50)
    for delivery in reader.sink.deliveries:
        delivery.release()
        delivery.release()
    assert (reader.pool.records, reader.pool.payload_bytes) == (0, 0)


async def test_the_pool_holds_the_true_size_of_a_delivery():
    sizes = []

    async def looks(delivery: Delivery) -> None:
        sizes.append((reader.pool.records, reader.pool.payload_bytes))

    reader = reader_of(run_of((0, 4)), sink=RecordingSink(looks))
    await reader.consumer().run()
    assert sizes == [(4, 40)]


async def test_a_publisher_that_does_not_wait_for_space_waits_with_its_delivery():
    class Impatient(ScriptedPublisherFactory):
        async def create(self, starting_position, shard):
            publisher = await super().create(starting_position, shard)

            async def run(consumer):
                await consumer(batch_of(RECORDS[:2]))
                return RunResult.COMPLETE

            publisher.run = run
            return publisher

    pool = PendingPool(max_records=2, max_bytes=1000)
    reader = reader_of(pool=pool)
    reader = type(reader)(factory=Impatient(), pool=pool)
    taken = await pool.acquire(1, 1)
    running = asyncio.create_task(reader.consumer().run())
    await reader.clock.settle()
    assert reader.sink.deliveries == []
    taken.release()
    await running
    assert reader.sink.records == RECORDS[:2]


async def test_a_delivery_larger_than_the_whole_pool_goes_through():
    reader = reader_of(run_of((0, 10)), pool=PendingPool(max_records=3, max_bytes=30))
    await reader.read()
    assert reader.sink.records == RECORDS


async def test_a_publisher_that_stops_by_itself_is_an_error():
    reader = reader_of(ScriptedRun(result=RunResult.CANCELLED))
    with pytest.raises(PublisherCancelledError, match="ScriptedPublisher returned CANCELLED"):
        await reader.read()


async def test_a_publisher_may_say_cancelled_after_it_was_stopped():
    async def stops(delivery: Delivery) -> None:
        consumer.stop()

    script = ScriptedRun(batches=[batch_of(RECORDS[:2])], result=RunResult.CANCELLED)
    reader = reader_of(script, sink=RecordingSink(stops))
    consumer = reader.consumer()
    await consumer.run()
    assert consumer.progress == after(1, as_of=consumer.progress.as_of)


async def test_an_error_of_the_publisher_comes_through_after_what_it_delivered():
    error = AccessDeniedError("no", operation="GetRecords", code="AccessDenied")
    reader = reader_of(run_of((0, 4), error=error))
    with pytest.raises(AccessDeniedError) as caught:
        await reader.read()
    assert caught.value is error
    assert reader.sink.records == RECORDS[:4]
    assert reader.pool.records == 0


async def test_a_closed_pool_ends_the_reading():
    reader = reader_of(run_of((0, 4)))
    reader.pool.close()
    with pytest.raises(ClosedError):
        await reader.read()


async def test_numbers_that_sort_differently_as_text_are_not_taken_for_repeated_ones():
    many = sample_records(20)
    assert (many[8].sequence_number, many[9].sequence_number) == ("999", "1000")
    scripts = [ScriptedRun(batches=[batch_of([one])]) for one in many]
    reader = reader_of(*scripts)
    await finish(reader.consumer().run(), reader.clock)
    assert reader.sink.records == many


@pytest.mark.parametrize(
    ("indices", "repeated"),
    [([2, 1, 0], 0), ([0, 0, 1, 1, 2], 2), ([2, 0, 1, 2, 0], 2), ([1, 2, 0, 0], 1)],
)
async def test_records_out_of_order_within_a_delivery_are_handed_on_in_order_and_once(
    indices: list[int], repeated: int, caplog: pytest.LogCaptureFixture
):
    """Only a server that is broken sends them; sample numbers of both lengths take part."""
    runs = [[RECORDS[index + first] for index in indices] for first in (0, 3, 6)]
    reader = reader_of(ScriptedRun(batches=[batch_of(records) for records in runs]))
    progress = await reader.read()
    assert reader.sink.records == RECORDS[:9]
    assert progress.processed == place(8)
    skipped = [one.records for one in reader.events if isinstance(one, RecordsSkipped)]
    assert skipped == [repeated] * 3 * (repeated > 0)
    (warning,) = caplog.messages
    assert warning.startswith(f"{sample_shard()}: ")


async def test_records_of_a_later_delivery_that_come_before_the_position_are_dropped():
    reader = reader_of(ScriptedRun(batches=[batch_of(RECORDS[3:5]), batch_of(RECORDS[6:1:-1])]))
    await reader.read()
    assert reader.sink.records == RECORDS[3:7]
