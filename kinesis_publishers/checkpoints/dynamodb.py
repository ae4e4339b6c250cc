"""Checkpoints in a table of DynamoDB, for applications that run on more than one machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final, Self

from kinesis_publishers.abc import CheckpointStoreContext, JoinedWrite, OpenTransaction
from kinesis_publishers.checkpoints.dynamodb_table import (
    DynamoDbTable,
    Item,
    ItemRequest,
    Values,
    condition_of,
    item_of,
    values_of,
)
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields, stored_version
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import AwsConfig, DynamoDbCheckpointConfig, Properties
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    ShardKey,
    StoredCheckpoint,
)

_KEYS: Final = {"application": "HASH", "shard": "RANGE"}


class DynamoDbCheckpointStore(VersionedStore):
    """Keeps checkpoints as items of a table, one per shard, which applications may share."""

    storage: DynamoDbTable

    def __init__(
        self, context: CheckpointStoreContext, aws: AwsConfig, config: DynamoDbCheckpointConfig
    ) -> None:
        super().__init__(context, DynamoDbTable(aws, config, context.clock, _KEYS))

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        aws = AwsConfig.from_properties(properties)
        return cls(context, aws, DynamoDbCheckpointConfig.from_properties(properties))

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        rows = [stored_of(item, where=self) async for item in self.items()]
        return {row.checkpoint.shard: row for row in rows}

    def items(self, **request: Any) -> AsyncIterator[Item]:
        return self.storage.read_items(
            "Query",
            KeyConditionExpression="application = :application",
            ExpressionAttributeValues=item_of({":application": self._context.application}),
            **request,
        )

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        return await self.storage.apply(changes, self._request, stored_version)

    def join(self, write: CheckpointWrite, transaction: OpenTransaction) -> JoinedWrite:
        self.storage.check_transaction(transaction)
        attempt = self._book.attempt_joined(write.shard, write.expected)
        items = [self._request(attempt, write.checkpoint)]
        if (owner := transaction.owner) is not None:
            is_own = {
                "Key": item_of(_key(self._context.application, owner)),
                "ConditionExpression": "writer = :own",
                "ExpressionAttributeValues": item_of({":own": self._book.writer}),
            }
            items.append(("ConditionCheck", is_own))
        execute = self.storage.joined(transaction, items)
        return JoinedWrite(version=attempt.version, execute=execute)

    def _request(self, attempt: Attempt, checkpoint: Checkpoint | None) -> ItemRequest:
        application = self._context.application
        known = attempt.expected
        condition = condition_of(
            attempt,
            {"version": known.number, "writer": known.writer} if known else {"application": None},
            "version BETWEEN :first AND :last AND writer = :own",
        )
        if checkpoint is None:
            return "DeleteItem", condition | {"Key": item_of(_key(application, attempt.shard))}
        now = self._context.clock.now()
        item = row_of(application, checkpoint, attempt.version, now)
        return "PutItem", condition | {"Item": item}


def _key(application: str, shard: ShardKey) -> Values:
    # The name of a stream has no slash.
    return {"application": application, "shard": f"{shard.stream_arn}/{shard.shard_id}"}


def row_of(
    application: str, checkpoint: Checkpoint, version: CheckpointVersion, written_at: datetime
) -> Item:
    fields = fields_of(checkpoint, version, written_at)
    return item_of(_key(application, checkpoint.shard) | fields)


def stored_of(item: Item, *, where: object) -> StoredCheckpoint:
    """Return the checkpoint of an item.

    Raises:
        CheckpointError: the item was written by hand, or is damaged.
    """
    try:
        values = values_of(item)
        arn, _, shard_id = values["shard"].rpartition("/")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{where} has an item that is no checkpoint ({error!r}): {item!r:.500}. Remove it, or "
            "choose another table or application."
        ) from error
    return stored_from_fields(ShardKey(arn, shard_id), values, where=where)
