"""The framework without Spark, from one properties dict, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import Delivery, KinesisDataFetcher, RecordBatch, Shard
from kinesis_publishers.errors import (
    CredentialsError,
    MissingOptionError,
)
from kinesis_publishers.model.native import PackedColumn, native
from kinesis_publishers.testing.fakes import RecordingSink
from kinesis_publishers.testing.local_kinesis import Fault, Limits
from tests.integration.readers.fanout_reader import until

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis
    from kinesis_publishers.testing.local_kinesis.faults import FaultKind

FROM_THE_START = {"kinesis.stream.initpos": "TRIM_HORIZON"}
RESTLESS = {
    "kinesis.shard.getrecords.intervalmillis": "20",
    "kinesis.shard.discovery.intervalmillis": "200",
    "kinesis.shard.getrecords.maxretries": "1000",
    "kinesis.shard.getrecords.backoff.base": "10",
    "kinesis.shard.getrecords.backoff.max": "50",
    "kinesis.shard.getiterator.maxretries": "1000",
    "kinesis.shard.getiterator.backoff.base": "10",
    "kinesis.shard.getiterator.backoff.max": "50",
}


class Reading:
    """Collects what a fetcher hands on, and stops it when enough has come."""

    def __init__(self, expected: int) -> None:
        self.fetcher: KinesisDataFetcher | None = None
        self.by_shard: dict[str, list[int]] = defaultdict(list)
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self._more = asyncio.Event()
        self._expected = expected

    async def on_batch(self, shard: Shard, batch: RecordBatch) -> None:
        for record in batch:
            self.by_shard[shard.shard_id].append(int(record.sequence_number))
            self.by_key[record.partition_key].append(int(record.data))
            self.count += 1
        self._more.set()
        if self.count >= self._expected and self.fetcher is not None:
            self.fetcher.stop()

    async def wait_for(self, count: int) -> None:
        while self.count < count:
            self._more.clear()
            await self._more.wait()

    async def run(self, properties: dict[str, str]) -> None:
        async with KinesisDataFetcher.from_properties(properties, self.on_batch) as fetcher:
            self.fetcher = fetcher
            async with asyncio.timeout(60):
                await fetcher.run()

    @property
    def numbers(self) -> list[int]:
        return sorted(number for numbers in self.by_key.values() for number in numbers)


def numbered(start: int, stop: int) -> list[tuple[str, bytes]]:
    return [(f"key-{number % 40}", b"%d" % number) for number in range(start, stop)]


@pytest.mark.parametrize("seed", range(2))
async def test_faults_and_resharding_cost_no_record_and_no_order(
    local_kinesis: LocalKinesis, seed: int
) -> None:
    chance = random.Random(seed)
    local_kinesis.limits = Limits.off()
    local_kinesis.create_stream("orders", 3)
    for kind in ("throttle", "internal_failure", "reset", "truncate", "empty"):
        every = chance.randint(3, 9)
        local_kinesis.add_fault(Fault("GetRecords", kind, times=None, every=every))
    local_kinesis.add_fault(
        Fault("GetRecords", "error", code="ExpiredIteratorException", times=None, every=7)
    )
    local_kinesis.add_fault(Fault("GetShardIterator", "internal_failure", times=None, every=3))
    local_kinesis.add_fault(Fault("ListShards", "throttle", times=2))
    reading = Reading(3000)

    async def put() -> None:
        for index in range(6):
            local_kinesis.put_many("orders", numbered(500 * index, 500 * index + 500))
            await reading.wait_for(500 * index + 100)
            local_kinesis.reshard("orders", chance.randint(1, 6))

    properties = {**local_kinesis.properties("orders"), **FROM_THE_START, **RESTLESS}
    async with asyncio.TaskGroup() as group:
        group.create_task(put())
        group.create_task(reading.run(properties))
    assert reading.numbers == list(range(3000))
    for key, numbers in reading.by_key.items():
        assert numbers == sorted(numbers), key


@pytest.mark.parametrize(
    ("publisher", "operation", "kinds"),
    [
        ("POLLING", "GetRecords", ("reversed", "repeated", "no_next_iterator")),
        ("EFO", "SubscribeToShard", ("reversed",)),
        ("EFO", "SubscribeToShard", ("repeated",)),
    ],
)
async def test_answers_that_a_broken_server_sends_cost_no_record_and_no_order(
    local_kinesis: LocalKinesis, publisher: str, operation: str, kinds: tuple[FaultKind, ...]
) -> None:
    local_kinesis.limits = Limits.off()
    local_kinesis.create_stream("orders", 1)
    local_kinesis.put_many("orders", numbered(0, 1000))
    for every, kind in enumerate(kinds, start=1 + len(kinds) // 2):
        local_kinesis.add_fault(Fault(operation, kind, times=None, every=every))
    reading = Reading(1000)
    await reading.run(
        {
            **local_kinesis.properties("orders"),
            **FROM_THE_START,
            **RESTLESS,
            "kinesis.stream.recordpublisher": publisher,
            "kinesis.stream.efo.consumername": "broken",
            "kinesis.shard.getrecords.maxrecordcount": "100",
        }
    )
    (numbers,) = reading.by_shard.values()
    assert numbers == sorted(set(numbers))
    assert reading.numbers == list(range(1000))


async def test_progress_resumes_where_it_was(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders", 2)
    local_kinesis.put_many("orders", numbered(0, 1000))
    properties = {**local_kinesis.properties("orders"), **FROM_THE_START}
    first = Reading(1000)
    await first.run(properties)
    assert first.fetcher is not None
    local_kinesis.reshard("orders", 5)
    local_kinesis.put_many("orders", numbered(1000, 2000))
    second = Reading(1000)
    async with KinesisDataFetcher.from_properties(
        properties, second.on_batch, resume=first.fetcher.progress
    ) as fetcher:
        second.fetcher = fetcher
        async with asyncio.timeout(60):
            await fetcher.run()
    assert second.numbers == list(range(1000, 2000))


async def test_a_slow_callback_holds_memory_down(local_kinesis: LocalKinesis) -> None:
    local_kinesis.create_stream("orders", 8)
    local_kinesis.put_many("orders", [(f"key-{n}", bytes(10_000)) for n in range(4000)])
    is_held, never = asyncio.Event(), asyncio.Event()
    held = 0

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        nonlocal held
        held += batch.payload_bytes
        is_held.set()
        await never.wait()

    properties = {
        **local_kinesis.properties("orders"),
        **FROM_THE_START,
        "kinesis.pending.maxbytes": "12MiB",
        "kinesis.shard.discovery.intervalmillis": "100",
    }
    async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
        running = asyncio.create_task(fetcher.run())
        async with asyncio.timeout(30):
            await is_held.wait()
            # The other shards have their chance meanwhile: discovery goes its rounds.
            await until(lambda: len(local_kinesis.calls("ListShards")) > 5)
        # The first page of a shard may be 10 MiB: with 12 MiB there is room for one at a time, and
        # for the next only when what the first really took is known.
        assert held <= 12 * 1024 * 1024
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_missing_region_is_said_before_any_call(local_kinesis: LocalKinesis) -> None:
    properties = local_kinesis.properties("orders")
    del properties["aws.region"]
    with pytest.raises(MissingOptionError, match="region"):
        await Reading(1).run(properties)
    assert local_kinesis.calls() == []


async def test_missing_credentials_are_said_with_what_to_check(
    local_kinesis: LocalKinesis,
) -> None:
    local_kinesis.create_stream("orders", 1)
    given = local_kinesis.properties("orders")
    properties = {
        key: value for key, value in given.items() if not key.startswith("aws.credentials")
    }
    with pytest.raises(CredentialsError, match=r"aws\.credentials\.provider"):
        await Reading(1).run(properties)


@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
@pytest.mark.parametrize("packs_columns", [False, True])
async def test_only_a_sink_of_arrow_gets_packed_columns(
    local_kinesis: LocalKinesis, publisher: str, packs_columns: bool
) -> None:
    local_kinesis.create_stream("orders", 1)
    local_kinesis.put_many("orders", numbered(0, 50))
    properties = local_kinesis.properties("orders") | FROM_THE_START
    properties["kinesis.stream.recordpublisher"] = publisher
    properties["kinesis.stream.efo.consumername"] = "reader"
    kinds: list[type] = []

    async def stop(delivery: Delivery) -> None:
        kinds.append(type(delivery.batch.payloads))
        fetcher.stop()

    sink = RecordingSink(stop)
    sink.packs_columns = packs_columns
    async with (
        asyncio.timeout(60),
        KinesisDataFetcher.from_properties(properties, sink) as fetcher,
    ):
        await fetcher.run()
    assert [record.data for record in sink.records] == [data for _, data in numbered(0, 50)]
    assert set(kinds) == {PackedColumn if packs_columns and native() else list}
