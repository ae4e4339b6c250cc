"""An application of the KCL has stopped, and ours goes on with its lease table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import KinesisDataFetcher, RecordBatch, Shard, UserRecord
from kinesis_publishers.aggregation import pack_user_records
from kinesis_publishers.testing.local_kinesis import Fault
from tests.unit.checkpoints.kcl_support import kcl_table, lease_item

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

_PLAIN = [("key", b"%d" % number) for number in range(4)]
_SHARD = "shardId-000000000000"


def _aggregate() -> bytes:
    records = [UserRecord(data=b"%d" % number, partition_key="key") for number in range(4, 8)]
    packed = pack_user_records(records)
    return packed.data


@pytest.mark.parametrize(
    ("record", "sub", "following"),
    [(None, 0, 0), (0, 0, 1), (3, 0, 4), (4, 0, 5), (4, 2, 7), (4, 3, 8), (4, 2**31 - 1, 8)],
)
async def test_reading_goes_on_after_the_last_record_that_the_kcl_has_processed(
    local_kinesis: LocalKinesis, dynamodb_url: str, record: int | None, sub: int, following: int
) -> None:
    local_kinesis.create_stream("orders", 1)
    places = local_kinesis.put_many("orders", [*_PLAIN, ("a", _aggregate()), ("key", b"8")])
    numbers: list[int] = []

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        numbers.extend(int(one) for one in batch.payloads)
        if numbers[-1] == 8:
            fetcher.stop()

    properties = local_kinesis.properties("orders")
    with kcl_table(dynamodb_url, properties["aws.region"]) as table:
        row = lease_item(
            _SHARD,
            checkpoint={"S": "TRIM_HORIZON" if record is None else places[record][1]},
            checkpointSubSequenceNumber={"N": str(sub)},
            pendingCheckpoint={"S": places[5][1]},
            leaseOwner=None,
            parentShardId=None,
            throughputKBps=None,
            tier={"S": "gold"},
        )
        table.put(row)
        properties |= {
            "kinesis.checkpoint.application": "billing",
            "kinesis.checkpoint.store": "dynamodb",
            "kinesis.checkpoint.dynamodb.table": table.config.table,
            "kinesis.checkpoint.dynamodb.endpoint": dynamodb_url,
            "kinesis.lease.enabled": "true",
            # Its third is how long moto may take for an answer on a busy machine.
            "kinesis.lease.failovermillis": "60000",
        }
        async with KinesisDataFetcher.from_properties(properties, on_batch) as fetcher:
            async with asyncio.timeout(30):
                await fetcher.run()
        stored = table.get(_SHARD)
    assert numbers == list(range(following, 9))
    assert stored is not None
    changed = ("checkpoint", "checkpointSubSequenceNumber", "ownerSwitchesSinceCheckpoint")
    assert [stored.pop(name) for name in changed] == [
        {"S": places[5][1]},
        {"N": "2147483647"},
        {"N": "0"},
    ]
    assert int(stored["leaseCounter"]["N"]) > 41
    kept = row.keys() - {*changed, "leaseCounter", "pendingCheckpoint"}
    assert {name: stored.get(name) for name in kept} == {name: row[name] for name in kept}
    assert not {"leaseOwner", "checkpointOwner", "pendingCheckpoint"} & stored.keys()


async def test_leases_wait_until_the_streams_are_known(
    local_kinesis: LocalKinesis, dynamodb_url: str
) -> None:
    """The rows of a stream do not name it, and its description may take longer than a look."""
    local_kinesis.create_stream("orders", 1)
    local_kinesis.put_many("orders", _PLAIN)
    slow = Fault(operation="DescribeStreamSummary", kind="delay", delay_seconds=1.5)
    local_kinesis.add_fault(slow)
    read: list[bytes] = []

    async def on_batch(shard: Shard, batch: RecordBatch) -> None:
        read.extend(batch.payloads)
        fetcher.stop()

    properties = local_kinesis.properties("orders")
    with kcl_table(dynamodb_url, properties["aws.region"]) as table:
        table.put(lease_item(_SHARD, checkpoint={"S": "TRIM_HORIZON"}, leaseOwner=None))
        properties |= {
            "kinesis.checkpoint.application": "billing",
            "kinesis.checkpoint.store": "dynamodb",
            "kinesis.checkpoint.dynamodb.table": table.config.table,
            "kinesis.checkpoint.dynamodb.endpoint": dynamodb_url,
            "kinesis.lease.enabled": "true",
            "kinesis.lease.failovermillis": "3000",
        }
        async with (
            asyncio.timeout(30),
            KinesisDataFetcher.from_properties(properties, on_batch) as fetcher,
        ):
            await fetcher.run()
    assert read == [data for _, data in _PLAIN]
