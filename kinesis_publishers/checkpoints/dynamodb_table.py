"""The table of the DynamoDB store: its keys, and how it comes to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kinesis_publishers.aws.errors import RefusedError, text_in
from kinesis_publishers.checkpoints.dynamodb_client import NOT_FOUND, TableClient
from kinesis_publishers.errors import AccessDeniedError, CheckpointError

if TYPE_CHECKING:
    from kinesis_publishers.errors import KinesisPublishersError

__all__ = ["PARTITION_KEY", "SORT_KEY", "missing_table", "provide_table"]

PARTITION_KEY: Final = "application"
SORT_KEY: Final = "shard"
_KEYS: Final = {PARTITION_KEY: "HASH", SORT_KEY: "RANGE"}

# Creating a table takes ten seconds or so.
_POLL_SECONDS: Final = 1.0
_ACTIVE_TIMEOUT_SECONDS: Final = 180.0


async def provide_table(client: TableClient) -> None:
    """Wait until the table is ready; create it if it is missing.

    Raises:
        CheckpointError: it has other keys, or does not become ready.
        AccessDeniedError: the credentials do not allow it; says what to do.
    """
    try:
        async with client.context.clock.timeout(_ACTIVE_TIMEOUT_SECONDS) as limit:
            while not await _is_active(client):
                await client.context.clock.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CheckpointError(
            f"{client} has not become ACTIVE in {_ACTIVE_TIMEOUT_SECONDS:g} seconds: look at it in "
            "DynamoDB, and start again."
        ) from error


async def _is_active(client: TableClient) -> bool:
    try:
        return await client.call(
            "describe_table", "DescribeTable", lambda answer: _is_usable(client, answer["Table"])
        )
    except RefusedError as error:
        if error.code != NOT_FOUND:
            raise
        return await _create(client)
    except AccessDeniedError as error:
        error.add_note(
            "With kinesis.checkpoint.dynamodb.createtable = false the table is neither described "
            "nor created."
        )
        raise


def _is_usable(client: TableClient, table: dict[str, Any]) -> bool:
    status = text_in(table, "TableStatus")
    keys = {text_in(key, "AttributeName"): text_in(key, "KeyType") for key in table["KeySchema"]}
    if keys != _KEYS:
        raise CheckpointError(
            f"{client} is not one of checkpoints: its keys are {', '.join(sorted(keys))}, not "
            f"{PARTITION_KEY} and {SORT_KEY}. Set kinesis.checkpoint.dynamodb.table to another."
        )
    # An update does not keep anybody from reading and writing; while DELETING, wait and create.
    return status in {"ACTIVE", "UPDATING"}


async def _create(client: TableClient) -> bool:
    """Create the table; return whether it is ready."""
    try:
        return await client.call(
            "create_table",
            "CreateTable",
            lambda answer: _is_usable(client, answer["TableDescription"]),
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in _KEYS.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in _KEYS],
        )
    except RefusedError as error:
        # Another process has just created it.
        if error.code != "ResourceInUseException":
            raise
        return False


def missing_table(client: TableClient) -> KinesisPublishersError:
    """Return the error that says that the table is not there."""
    return CheckpointError(
        f"{client} does not exist in {client.aws.region}: create it with the keys {PARTITION_KEY} "
        f"(partition key, text) and {SORT_KEY} (sort key, text), or let it be created with "
        "kinesis.checkpoint.dynamodb.createtable = true. If it was removed while it was in use, "
        "its checkpoints are gone."
    )
