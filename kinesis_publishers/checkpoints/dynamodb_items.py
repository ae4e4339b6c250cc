"""A checkpoint as an item of DynamoDB, and the condition under which it is replaced. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kinesis_publishers.checkpoints.stored_form import (
    checkpoint_from_fields,
    fields_of,
    instant_text,
    version_from_fields,
)
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.model import ShardKey, StoredCheckpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from kinesis_publishers.checkpoints.versions import Attempt
    from kinesis_publishers.model import Checkpoint, CheckpointVersion

__all__ = ["Item", "condition_of", "item_of", "key_of", "stored_of"]

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
    fields = {
        "version": version.number,
        "writer": version.writer,
        "written_at": instant_text(written_at),
        **fields_of(checkpoint),
    }
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
    shard = ShardKey(arn, shard_id)
    return StoredCheckpoint(
        checkpoint=checkpoint_from_fields(shard, fields, where=where),
        version=version_from_fields(shard, fields, where=where),
    )


def _value(value: Mapping[str, Any]) -> object:
    if "N" in value:
        text: str = value["N"]
        return int(text) if text.isdecimal() else text
    return value.get("S", value)


def condition_of(attempt: Attempt) -> dict[str, Any]:
    """Return the parameters that let a write through only if it replaces what it may replace.

    The same as :meth:`~kinesis_publishers.checkpoints.versions.Attempt.replaces`.
    """
    own = attempt.version
    values: Item = {
        ":own": {"S": own.writer},
        ":first": {"N": str(attempt.first_unanswered)},
        ":last": {"N": str(own.number)},
    }
    if attempt.expected is None:
        expected = "attribute_not_exists(#shard)"
    else:
        expected = "(#version = :version AND #writer = :writer)"
        values[":version"] = {"N": str(attempt.expected.number)}
        values[":writer"] = {"S": attempt.expected.writer}
    names = {"#version": "version", "#writer": "writer"}
    if attempt.expected is None:
        names["#shard"] = "shard"
    return {
        "ConditionExpression": (
            f"{expected} OR (#writer = :own AND #version BETWEEN :first AND :last)"
        ),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
