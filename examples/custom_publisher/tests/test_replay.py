"""What a replay does beyond the contract: its timing, its files, and a whole stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kinesis_replay import ReplayPublisherFactory
from recorded import SPARK_NAMES, record, replaying

from kinesis_publishers import KinesisDataFetcher, Properties, SequenceNumber, StartingPosition
from kinesis_publishers.errors import ConfigError, InvalidOptionError
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    FakeStream,
    ShardReader,
    deaggregated,
    publisher_context,
    sample_aggregates,
    sample_records,
    sample_shard,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_publishers import RecordBatch, Shard
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers.testing.manual_clock import ManualClock

SHARD = sample_shard()
RECORDS = sample_records(6)


def factory(path: Path, clock: ManualClock, **custom: str) -> ReplayPublisherFactory:
    properties = Properties.parse(replaying(path, **custom))
    context = publisher_context(control_plane=FakeControlPlane(FakeStream([SHARD])), clock=clock)
    return ReplayPublisherFactory.from_properties(properties, context)


@pytest.mark.parametrize(("speed", "seconds"), [("1", 5.0), ("2.5", 2.0), ("0", 0.0)])
async def test_records_keep_their_distances_divided_by_the_speed(
    tmp_path: Path, manual_clock: ManualClock, speed: str, seconds: float
) -> None:
    record(tmp_path, SHARD, RECORDS)
    reader = ShardReader(factory=factory(tmp_path, manual_clock, speed=speed), clock=manual_clock)
    await reader.read()
    assert sum(manual_clock.sleeps) == pytest.approx(seconds)
    assert [one.data for one in reader.sink.records] == [one.data for one in RECORDS]


async def test_without_timing_a_shard_says_that_nothing_is_missing_with_its_last_row(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    record(tmp_path, SHARD, sample_records(5000))
    # Longer ago than any stream keeps its records, which is no loss here.
    await manual_clock.advance(1000 * 86_400)
    reader = ShardReader(factory=factory(tmp_path, manual_clock, speed="0"), clock=manual_clock)
    await reader.read()
    at_the_tip = next(one for one in reader.sink.statuses if one.millis_behind_latest == 0)
    assert at_the_tip.progress.processed == SequenceNumber(str(991 + 4999))
    assert len(reader.sink.records) == 5000


async def test_a_quiet_shard_says_periodically_that_it_is_read(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    late = RECORDS[1]._replace(arrival_epoch_seconds=RECORDS[0].arrival_epoch_seconds + 60)
    record(tmp_path, SHARD, [RECORDS[0], late])
    reader = ShardReader(factory=factory(tmp_path, manual_clock), clock=manual_clock)
    await reader.read()
    assert len(reader.sink.deliveries) == 2
    assert len(reader.sink.statuses) >= 12


async def test_rows_of_several_files_come_in_order_and_once(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    record(tmp_path, SHARD, RECORDS[2:])
    record(tmp_path, SHARD, RECORDS[:4])
    reader = ShardReader(factory=factory(tmp_path, manual_clock), clock=manual_clock)
    await reader.read()
    assert [one.data for one in reader.sink.records] == [one.data for one in RECORDS]


async def test_what_the_spark_source_wrote_is_replayed_too(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    record(tmp_path, SHARD, RECORDS, names=SPARK_NAMES)
    reader = ShardReader(factory=factory(tmp_path, manual_clock), clock=manual_clock)
    await reader.read()
    assert [one.data for one in reader.sink.records] == [one.data for one in RECORDS]


async def test_aggregates_are_deaggregated_when_they_are_replayed(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    aggregates = sample_aggregates(2, 3, shard=SHARD)
    record(tmp_path, SHARD, aggregates)
    reader = ShardReader(factory=factory(tmp_path, manual_clock), clock=manual_clock)
    await reader.read()
    assert [one.data for one in reader.sink.records] == [
        one.data for one in deaggregated(aggregates)
    ]


async def test_records_from_inside_an_aggregate_are_an_error(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    record(tmp_path, SHARD, deaggregated(sample_aggregates(2, 3, shard=SHARD)))
    reader = ShardReader(factory=factory(tmp_path, manual_clock), clock=manual_clock)
    with pytest.raises(InvalidOptionError, match=r"kinesis\.aggregation = off"):
        await reader.read()


async def test_shards_that_would_never_be_read_are_an_error(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    record(tmp_path, sample_shard(7), sample_records(1, shard=sample_shard(7)))
    with pytest.raises(InvalidOptionError, match="shardId-000000000007, which the stream orders"):
        await factory(tmp_path, manual_clock).prepare([SHARD.stream_arn])
    with pytest.raises(InvalidOptionError, match="no rows of the stream invoices"):
        await factory(tmp_path, manual_clock).prepare(["arn:aws:kinesis:x:1:stream/invoices"])


def test_files_with_other_columns_are_refused(tmp_path: Path, manual_clock: ManualClock) -> None:
    pq.write_table(pa.table({"data": [b""]}), tmp_path / "0.parquet")
    with pytest.raises(InvalidOptionError, match="columns approximate_arrival_timestamp, part"):
        factory(tmp_path, manual_clock)


def test_the_position_must_be_pinned(tmp_path: Path, manual_clock: ManualClock) -> None:
    record(tmp_path, SHARD, RECORDS)
    making = factory(tmp_path, manual_clock).create(StartingPosition.latest(), SHARD)
    with pytest.raises(ValueError, match="LATEST must be pinned"):
        asyncio.run(making)


async def test_a_stream_is_replayed_from_end_to_end_by_the_name_of_the_entry_point(
    tmp_path: Path, local_kinesis: LocalKinesis
) -> None:
    local_kinesis.create_stream("orders", 2)
    expected = {}
    for number in range(2):
        shard = sample_shard(number)
        records = sample_records(20, shard=shard)
        record(tmp_path / "recording", shard, records)
        expected[shard.shard_id] = [one.data for one in records]
    delivered: dict[str, list[bytes]] = {shard_id: [] for shard_id in expected}

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        delivered[shard.shard_id].extend(batch.payloads)
        if delivered == expected:
            fetcher.stop()

    replay = replaying(tmp_path / "recording", speed="1000")
    properties = {**local_kinesis.properties("orders"), **replay}
    async with (
        asyncio.timeout(30),
        KinesisDataFetcher.from_properties(properties, on_batch) as fetcher,
    ):
        await fetcher.run()
    assert delivered == expected
    assert not local_kinesis.calls("GetRecords")


async def test_an_unknown_option_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    record(tmp_path, SHARD, RECORDS)
    properties = {"aws.region": "eu-west-1", **replaying(tmp_path, sped="2")}

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        raise AssertionError("nothing is read")

    with pytest.raises(ConfigError, match=r"did you mean kinesis\.custom\.replay\.speed"):
        async with KinesisDataFetcher.from_properties(properties, on_batch):
            pass
