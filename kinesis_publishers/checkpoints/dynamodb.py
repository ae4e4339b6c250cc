"""Checkpoints in a table of DynamoDB, for applications that run on more than one machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Self, TypeAlias

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints.dynamodb_table import TableClient, TableForm, write_all
from kinesis_publishers.checkpoints.stored_form import fields_of, stored_from_fields
from kinesis_publishers.checkpoints.versions import Attempt, Change, Refusal, VersionedStore
from kinesis_publishers.config import AwsConfig, DynamoDbCheckpointConfig, Properties
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import Checkpoint, CheckpointVersion, ShardKey, StoredCheckpoint

OWN_FORM: Final = TableForm(keys={"application": "HASH", "shard": "RANGE"})


class DynamoDbCheckpointStore(VersionedStore):
    """Keeps checkpoints as items of a table, one per shard, which applications may share.

    A batch is as many conditional writes, a limited number of them at the same time.
    """

    def __init__(
        self, context: CheckpointStoreContext, aws: AwsConfig, config: DynamoDbCheckpointConfig
    ) -> None:
        super().__init__(context)
        self._client = TableClient(aws, config, context, OWN_FORM)

    @classmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        return cls(
            context,
            AwsConfig.from_properties(properties),
            DynamoDbCheckpointConfig.from_properties(properties),
        )

    def __str__(self) -> str:
        return str(self._client)

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        found: dict[ShardKey, StoredCheckpoint] = {}
        items = self._client.read_items(
            "Query",
            KeyConditionExpression="application = :application",
            ExpressionAttributeValues={":application": {"S": self._context.application}},
        )
        async for item in items:
            stored = stored_of(item, where=self)
            found[stored.checkpoint.shard] = stored
        return found

    async def _apply(self, changes: Sequence[Change]) -> list[Refusal]:
        return await write_all(changes, self._write)

    async def _write(self, attempt: Attempt, checkpoint: Checkpoint | None) -> Refusal | None:
        application = self._context.application
        request: dict[str, Any] = condition_of(attempt)
        if checkpoint is None:
            operation = "DeleteItem"
            request["Key"] = key_of(application, attempt.shard)
        else:
            operation, now = "PutItem", self._context.clock.now()
            request["Item"] = item_of(application, checkpoint, attempt.version, now)
        item = await self._client.write_item(operation, **request)
        return None if item is None else _refusal(attempt, item)


def _refusal(attempt: Attempt, item: Mapping[str, Any]) -> Refusal:
    if not item:
        return Refusal(attempt=attempt, stored=None)
    return Refusal(
        attempt=attempt,
        stored=CheckpointVersion(
            number=int(item.get("version", {}).get("N", 0)),
            writer=item.get("writer", {}).get("S", "an unknown writer"),
        ),
        written_at=item.get("written_at", {}).get("S"),
    )


Item: TypeAlias = dict[str, dict[str, str]]


def key_of(application: str, shard: ShardKey) -> Item:
    """Return the key of a checkpoint; the name of a stream has no slash."""
    return {
        "application": {"S": application},
        "shard": {"S": f"{shard.stream_arn}/{shard.shard_id}"},
    }


def item_of(
    application: str, checkpoint: Checkpoint, version: CheckpointVersion, written_at: datetime
) -> Item:
    """Return the item of a checkpoint; what has no value is left out."""
    fields = fields_of(checkpoint, version, written_at)
    return key_of(application, checkpoint.shard) | {
        name: {"N": str(value)} if isinstance(value, int) else {"S": value}
        for name, value in fields.items()
        if value is not None
    }


def stored_of(item: Mapping[str, Mapping[str, Any]], *, where: object) -> StoredCheckpoint:
    """Return the checkpoint of an item.

    Raises:
        CheckpointError: the item was written by hand, or is damaged.
    """
    try:
        arn, _, shard_id = item["shard"]["S"].rpartition("/")
        fields = {name: _value(value) for name, value in item.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{where} has an item that is no checkpoint ({error!r}): {item!r:.500}. Remove it, or "
            "choose another table or application."
        ) from error
    return stored_from_fields(ShardKey(arn, shard_id), fields, where=where)


def _value(value: Mapping[str, Any]) -> object:
    if "N" in value:
        text: str = value["N"]
        return int(text) if text.isdecimal() else text
    return value.get("S", value)


def condition_of(attempt: Attempt) -> dict[str, Any]:
    """Return ``attempt.replaces`` as parameters of a write."""
    own = attempt.version
    values: Item = {
        ":own": {"S": own.writer},
        ":first": {"N": str(attempt.first_unanswered)},
        ":last": {"N": str(own.number)},
    }
    names = {"#version": "version", "#writer": "writer"}
    if attempt.expected is None:
        expected = "attribute_not_exists(#shard)"
        names["#shard"] = "shard"
    else:
        expected = "(#version = :version AND #writer = :writer)"
        values[":version"] = {"N": str(attempt.expected.number)}
        values[":writer"] = {"S": attempt.expected.writer}
    return {
        "ConditionExpression": (
            f"{expected} OR (#writer = :own AND #version BETWEEN :first AND :last)"
        ),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
