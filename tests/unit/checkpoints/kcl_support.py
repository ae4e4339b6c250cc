"""A lease table as the Kinesis Client Library leaves it, and its writes."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
from attrs import evolve, frozen

from kinesis_publishers import SequenceNumber, ShardKey, StreamIdentity
from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable
from kinesis_publishers.config import (
    AwsConfig,
    CredentialsConfig,
    CredentialsProvider,
    DynamoDbCheckpointConfig,
)
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    Lease,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.testing.contracts.checkpoint_store import store_context

if TYPE_CHECKING:
    from collections.abc import Iterator

AWS = AwsConfig(
    region="eu-west-1",
    credentials=CredentialsConfig(
        provider=CredentialsProvider.BASIC, access_key_id="local", secret_key="local"
    ),
)
CREATED_AT = datetime(2026, 5, 28, 9, 30, tzinfo=UTC)
ORDERS = StreamIdentity(
    name="orders",
    arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    created_at=CREATED_AT,
)
PAYMENTS = evolve(ORDERS, name="payments", arn=ORDERS.arn.replace("orders", "payments"))
ORDERS_KEY = "123456789012:orders:1779960600"
SHARD = ShardKey(ORDERS.arn, "shardId-000000000002")
NUMBER = "49590338271490256608559692538361571095921575989136588898"
AFTER = ShardProgress(position=StartingPosition.after(SequenceNumber(NUMBER)))

Item = dict[str, dict[str, Any]]


def lease_item(key: str = SHARD.shard_id, **changes: dict[str, Any] | None) -> Item:
    """Return a row as version 3.5 of the KCL writes it; ``None`` leaves an attribute out."""
    item: dict[str, dict[str, Any] | None] = {
        "leaseKey": {"S": key},
        "leaseOwner": {"S": "kcl-worker-1"},
        "leaseCounter": {"N": "41"},
        "ownerSwitchesSinceCheckpoint": {"N": "2"},
        "checkpoint": {"S": NUMBER},
        "checkpointSubSequenceNumber": {"N": "0"},
        "parentShardId": {"SS": ["shardId-000000000000", "shardId-000000000001"]},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "170141183460469231731687303715884105727"},
        "throughputKBps": {"N": "1.250977"},
        "entityType": {"S": "LEASE"},
        **changes,
    }
    return {name: value for name, value in item.items() if value is not None}


@frozen
class KclTable:
    """A table, and what the KCL does with its rows."""

    client: Any
    config: DynamoDbCheckpointConfig

    def put(self, *items: Item) -> None:
        for item in items:
            self.client.put_item(TableName=self.config.table, Item=item)

    def get(self, key: str = SHARD.shard_id) -> Item | None:
        """Return a row, its sets in order: DynamoDB keeps none."""
        found: Item | None = self.client.get_item(
            TableName=self.config.table, Key={"leaseKey": {"S": key}}
        ).get("Item")
        for value in (found or {}).values():
            if "SS" in value:
                value["SS"].sort()
        return found

    def row(self, key: str = SHARD.shard_id) -> Item:
        """Return a row that has to be there."""
        found = self.get(key)
        assert found is not None, key
        return found

    def delete(self, key: str = SHARD.shard_id) -> None:
        self.client.delete_item(TableName=self.config.table, Key={"leaseKey": {"S": key}})

    def update(self, *, is_counted: bool = True, **changes: dict[str, Any] | None) -> None:
        """Change attributes of the row as the KCL does, ``None`` removes; a renewal changes none.

        Only a request for a hand-over, and what is known of a shard, are not counted.
        """
        updates: dict[str, Any] = {
            name: {"Action": "DELETE"} if value is None else {"Action": "PUT", "Value": value}
            for name, value in changes.items()
        }
        if is_counted:
            updates["leaseCounter"] = {"Action": "ADD", "Value": {"N": "1"}}
        self.client.update_item(
            TableName=self.config.table,
            Key={"leaseKey": {"S": SHARD.shard_id}},
            AttributeUpdates=updates,
        )

    def store(self, *streams: StreamIdentity, **settings: Any) -> KclLeaseTable:
        context = settings.pop("context", None) or store_context("billing")
        store = KclLeaseTable(context, AWS, self.config, **settings)
        store.name_streams(streams or (ORDERS,))
        return store


@contextmanager
def kcl_table(url: str, region: str = "eu-west-1") -> Iterator[KclTable]:
    """Make an empty table, as version 2 of the KCL does."""
    client = boto3.client(
        "dynamodb",
        region_name=region,
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    table = f"kcl-{uuid4()}"
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
    )
    yield KclTable(
        client,
        DynamoDbCheckpointConfig(table=table, endpoint_url=url, create_table=True),
    )
    client.close()


def write_of(
    progress: ShardProgress = AFTER,
    lease: Lease | None = None,
    expected: CheckpointVersion | None = None,
    shard: ShardKey = SHARD,
) -> CheckpointWrite:
    checkpoint = Checkpoint(
        shard=shard, stream_created_at=CREATED_AT, progress=progress, lease=lease
    )
    return CheckpointWrite(checkpoint=checkpoint, expected=expected)
