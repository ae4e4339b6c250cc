"""Aggregates in the simple API: of two kinds of producers across a reshard, and invalid ones."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator as AwsAggregator

from kinesis_publishers import (
    DeadLetter,
    KinesisProducer,
    Record,
    RetryOnError,
    ScanResult,
    StopOnError,
    UserRecord,
    read,
    scan,
)
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.errors import AggregationError, InvalidOptionError
from kinesis_publishers.model import HashRange, hash_key_of
from tests.integration.processing.processing_support import STREAM, Orders
from tests.integration.processing.scanning_support import Collector
from tests.integration.readers.fanout_reader import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Sequence

COUNT = 2000
PER_AGGREGATE = 50


def put_with_aws_modules(client: Any, numbers: Sequence[int], shards: Sequence[dict]) -> None:
    """Aggregate without regard to shards, and put each record once, as AWS's modules do."""
    for some in in_groups(numbers):
        aggregator = AwsAggregator()
        for number in some:
            aggregator.add_user_record(f"key-{number}", b"%d" % number)
        key, _, data = aggregator.clear_and_get().get_contents()
        client.put_record(StreamName=STREAM, PartitionKey=key, Data=data)


def put_like_the_kpl(client: Any, numbers: Iterable[int], shards: Sequence[dict]) -> None:
    """Aggregate per shard of ``shards``, and put again what came into another shard than its own.

    ``shards`` may be out of date, as right after a reshard.
    """
    for one in shards:
        mine = [number for number in numbers if belongs(number, one)]
        for some in in_groups(mine):
            arrived_in = put_aggregate(client, some)
            foreign = [number for number in some if not belongs(number, arrived_in)]
            put_like_the_kpl(client, foreign, open_shards(client) if foreign else [])


def put_aggregate(client: Any, numbers: Iterable[int]) -> dict:
    records = [UserRecord(data=b"%d" % one, partition_key=f"key-{one}") for one in numbers]
    packed = pack_user_records(records)
    hash_key = packed.explicit_hash_key or hash_key_of(packed.partition_key)
    answer = client.put_record(
        StreamName=STREAM,
        PartitionKey=packed.partition_key,
        ExplicitHashKey=str(hash_key),
        Data=packed.data,
    )
    (shard,) = (one for one in open_shards(client) if one["ShardId"] == answer["ShardId"])
    return shard


def in_groups(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[at : at + PER_AGGREGATE] for at in range(0, len(numbers), PER_AGGREGATE)]


def belongs(number: int, shard: dict) -> bool:
    ends = shard["HashKeyRange"]
    hash_range = HashRange(int(ends["StartingHashKey"]), int(ends["EndingHashKey"]))
    return hash_key_of(f"key-{number}") in hash_range


def open_shards(client: Any) -> list[dict]:
    shards = client.list_shards(StreamName=STREAM)["Shards"]
    return [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]


async def read_until_marks(orders: Orders, marks: int, **properties: str) -> list[int]:
    """Read until the mark that stands last in each of the open shards has come."""
    numbers: list[int] = []
    async with read(orders.properties(**properties)) as records:
        async for record in records:
            if record.data == b"mark":
                marks -= 1
            else:
                numbers.append(int(record.data))
            if not marks:
                break
    return numbers


@pytest.mark.parametrize("put", [put_with_aws_modules, put_like_the_kpl])
async def test_every_record_in_aggregates_comes_once_across_a_reshard(
    orders: Orders, put: Callable[[Any, Sequence[int], Sequence[dict]], None]
) -> None:
    client = orders.server.client()
    known = open_shards(client)
    put(client, range(COUNT // 2), known)
    orders.server.reshard(STREAM, 4)
    put(client, range(COUNT // 2, COUNT), known)
    for one in (now := open_shards(client)):
        start = one["HashKeyRange"]["StartingHashKey"]
        client.put_record(StreamName=STREAM, PartitionKey="m", ExplicitHashKey=start, Data=b"mark")
    client.close()
    assert sorted(await read_until_marks(orders, len(now))) == list(range(COUNT))


@pytest.mark.parametrize("aggregation", ["true", "false"])
async def test_no_record_is_lost_while_a_stream_changes_who_chooses_shards(
    orders: Orders, aggregation: str
) -> None:
    """A reader and a producer run meanwhile, and one that aggregates whatever the stream does."""
    numbers, seen = iter(range(10**6)), Counter()
    properties = orders.properties(producer_aggregation=aggregation, producer_lingermillis="5")
    wanted: set[int] = set()

    async def put(producer: KinesisProducer, key: str | None) -> None:
        own = list(islice(numbers, 60))
        wanted.update(own)
        await (await producer.put_many([(b"%d" % n, key and f"{key}-{n}") for n in own]))

    async def read_all(records: AsyncIterable[Record]) -> None:
        async for record in records:
            seen[int(record.data)] += 1

    def put_aggregate_anywhere() -> None:
        own = list(islice(numbers, 5))
        wanted.update(own)
        users = [UserRecord(data=b"%d" % n, partition_key=f"key-{n}") for n in own]
        packed = pack_user_records(users)
        orders.server.put_many(STREAM, [(packed.partition_key, packed.data)])

    async with (
        KinesisProducer.from_properties(properties) as producer,
        read(orders.properties()) as records,
    ):
        reading = asyncio.create_task(read_all(records))
        for shards in (3, 5):
            for is_auto in (True, False):
                await asyncio.to_thread(orders.server.distribute, STREAM, is_auto=is_auto)
                putting = [asyncio.create_task(put(producer, key)) for key in (None, "key") * 3]
                if is_auto:
                    await asyncio.to_thread(put_aggregate_anywhere)
                    await asyncio.gather(*putting)
                    # It asks when it leaves something out: what it reads later it cannot know.
                    await until(lambda: seen.keys() >= wanted, reading)
                await asyncio.to_thread(orders.server.reshard, STREAM, shards + is_auto)
                await asyncio.gather(*putting)
        await producer.flush()
        await until(lambda: seen.keys() >= wanted, reading)
        reading.cancel()
    assert seen.keys() == wanted


# A record that names the partition key 5 of none.
MESSAGE = bytes.fromhex("1a0408051a00")
INVALID = bytes.fromhex("f3899ac2") + MESSAGE + hashlib.md5(MESSAGE).digest()


@pytest.mark.parametrize("with_retries", [False, True])
def test_the_dead_letter_takes_an_invalid_aggregate_at_once(
    orders: Orders, with_retries: bool
) -> None:
    orders.put(3, key="one shard")
    orders.server.put_many(STREAM, [("one shard", INVALID)])
    orders.put(3, key="one shard")
    letters: list[tuple[bytes, type]] = []
    policy: Any = DeadLetter(lambda record, error: letters.append((record.data, type(error))))
    if with_retries:
        # Its delays would outlast the test.
        policy = RetryOnError(otherwise=policy)
    collector = Collector(6)
    scan(orders.properties(**{"aggregation_on-invalid": "dead-letter"}), collector, on_error=policy)
    assert collector.seen == list(range(6))
    assert letters == [(INVALID, AggregationError)]


def test_with_aggregation_off_no_aggregate_is_invalid(orders: Orders) -> None:
    orders.server.put_many(STREAM, [("one shard", INVALID)])
    properties = orders.properties(**{"aggregation_on-invalid": "dead-letter"}, aggregation="off")
    seen: list[bytes] = []

    def process(record: Record) -> ScanResult:
        seen.append(record.data)
        return ScanResult.STOP

    scan(properties, process, on_error=DeadLetter(print))
    assert seen == [INVALID]


@pytest.mark.parametrize(
    "settings",
    [{"on_error": StopOnError()}, {"on_error": DeadLetter(print), "per_batch": True}],
    ids=["no dead letter", "whole batches"],
)
def test_a_scan_without_a_dead_letter_for_records_refuses_the_option(
    orders: Orders, settings: dict[str, Any]
) -> None:
    properties = orders.properties(**{"aggregation_on-invalid": "dead-letter"})
    with pytest.raises(InvalidOptionError, match="on-invalid is dead-letter"):
        scan(properties, print, **settings)
    assert orders.server.calls() == []


async def test_what_has_no_dead_letter_refuses_the_option_before_any_call(orders: Orders) -> None:
    properties = orders.properties(**{"aggregation_on-invalid": "dead-letter"})
    with pytest.raises(InvalidOptionError, match="use plain or fail elsewhere"):
        async with read(properties):
            pass
    assert orders.server.calls() == []


def test_with_fail_what_stands_before_an_invalid_aggregate_has_been_processed(
    orders: Orders,
) -> None:
    orders.put(5, key="one shard")
    orders.server.put_many(STREAM, [("one shard", INVALID)])
    collector = Collector(6)
    with pytest.raises(AggregationError, match="that the aggregate does not have") as raised:
        scan(orders.properties(**{"aggregation_on-invalid": "fail"}), collector)
    assert collector.seen == list(range(5))
    # A last write that takes more than ten seconds is given up, and noted: records then repeat.
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(AggregationError, match="that the aggregate does not have"):
        scan(orders.properties(**{"aggregation_on-invalid": "fail"}), collector)
    assert collector.seen == list(range(5))
