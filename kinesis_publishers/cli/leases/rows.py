"""The rows of an application: where they are, and who reads the shards."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import click

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.assembly import ControlServices, open_checkpoint_store, open_control
from kinesis_publishers.checkpoints.stored_progress import STREAM
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import (
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    LeaseConfig,
    Properties,
    SqlCheckpointConfig,
    StreamsConfig,
)
from kinesis_publishers.leases.rules import Rows, lease_of
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointWrite,
    Shard,
    ShardKey,
    StoredCheckpoint,
    StreamIdentity,
)

_T = TypeVar("_T")

_CREATES: Final = {
    "sql": SqlCheckpointConfig.create_table,
    "dynamodb": DynamoDbCheckpointConfig.create_table,
}
_PLACES: Final = {DynamoDbCheckpointConfig.table, DynamoDbCheckpointConfig.endpoint_url}


def lease_options(command: Callable[..., _T]) -> Callable[..., _T]:
    """Give ``command`` the common options, which it takes as ``properties``.

    The lowest of the decorators, as :func:`connection_options`.
    """

    @click.option(
        "--application",
        metavar="NAME",
        help=f"The application, as {CheckpointConfig.application.full_key}.",
    )
    @connection_options
    @functools.wraps(command)
    def with_properties(
        *args: Any, application: str | None, connection: Connection, **options: Any
    ) -> _T:
        return command(*args, properties=lease_properties(connection, application), **options)

    return with_properties


def lease_properties(connection: Connection, application: str | None) -> Properties:
    """Return the properties of a command; ``application`` takes precedence over theirs."""
    key = CheckpointConfig.application.full_key
    properties = connection.properties_without_reading({key: application} if application else {})
    config = CheckpointConfig.from_properties(properties)
    if config.application is None:
        raise click.UsageError(f"Nothing names the application: use --application, or set {key}.")
    if config.store == "memory":
        raise click.UsageError(
            f"{CheckpointConfig.store.full_key} is memory, which ends with its process: there is "
            "nothing to show or to change."
        )
    # A person waits, as for the service.
    retries = CheckpointConfig.retry.max_retries
    return properties if properties.is_given(retries) else properties.with_values({retries: 3})


@asynccontextmanager
async def open_store(
    properties: Properties, streams: Sequence[StreamIdentity] = (), *, creates: bool = False
) -> AsyncIterator[CheckpointStore]:
    """Open the store; only if this ``creates`` a table it may be missing.

    It learns of the streams, which are described only if it needs to know.
    """
    created_by = _CREATES.get(properties.get(CheckpointConfig.store))
    if created_by and not creates:
        # What a new table is like must not be said either.
        of_new_tables = dict.fromkeys({*DynamoDbCheckpointConfig.options()} - _PLACES)
        properties = properties.with_values({**of_new_tables, created_by: False})
    async with open_checkpoint_store(properties, clock=SystemClock()) as store:
        needs_streams = type(store).name_streams is not CheckpointStore.name_streams
        if needs_streams and not streams:
            async with open_control(properties) as control:
                streams = await control.streams()
        store.name_streams(streams)
        yield store


async def listed_shards(
    control: ControlServices,
) -> tuple[list[StreamIdentity], dict[ShardKey, Shard]]:
    """Return the streams, and all shards that they list."""
    streams = await control.streams()
    shards = [shard for one in streams for shard in await control.discovery.list_shards(one.arn)]
    return streams, {shard.key: shard for shard in shards}


async def load_rows(
    store: CheckpointStore, properties: Properties
) -> dict[ShardKey, StoredCheckpoint]:
    """Return the rows of the streams that the properties name, those of whole streams included."""
    streams = {one.name: one.arn for one in StreamsConfig.from_properties(properties).streams}
    found = await store.load()
    return {
        key: found[key]
        for key in sorted(found, key=str)
        if key.stream_name in streams and streams[key.stream_name] in (None, key.stream_arn)
    }


async def load_shards(properties: Properties) -> dict[ShardKey, StoredCheckpoint]:
    """Return the rows of the shards of these streams."""
    async with open_store(properties) as store:
        return shards_of(await load_rows(store, properties))


async def save(store: CheckpointStore, rows: Rows, new: Collection[Checkpoint]) -> None:
    """Write ``new`` over ``rows``, or where there is none.

    Raises:
        StaleCheckpointError: another process has changed one of them in between.
    """
    known = {key: row.version for key, row in rows.items()}
    writes = [CheckpointWrite(checkpoint=one, expected=known.get(one.shard)) for one in new]
    if writes:
        await store.save(writes)


def shards_of(rows: Rows) -> dict[ShardKey, StoredCheckpoint]:
    """Return the rows of shards, without those of whole streams."""
    return {key: row for key, row in rows.items() if key.shard_id != STREAM}


def owner_of(row: StoredCheckpoint) -> str:
    """Return who has a lease, and who gets it next."""
    lease = lease_of(row)
    return " -> ".join(name for name in (lease.leaving, lease.owner) if name is not None) or "-"


def single_readers(rows: Rows, keys: Iterable[ShardKey]) -> list[StoredCheckpoint]:
    """Return the rows of the streams of ``keys`` that one reader owns as a whole."""
    leased = {key.stream_arn for key, row in rows.items() if row.checkpoint.lease is not None}
    marks = {ShardKey(key.stream_arn, STREAM) for key in keys if key.stream_arn not in leased}
    return [rows[key] for key in sorted(marks, key=str) if key in rows]


async def settled_rows(
    store: CheckpointStore, properties: Properties, keys: Collection[ShardKey]
) -> Rows:
    """Return the rows when nobody reads ``keys``.

    A worker that is alive renews its leases within the failover time, which is waited for; no clock
    of another machine is asked.

    Raises:
        ClickException: somebody reads one of them, or may do so.
    """
    rows = await load_rows(store, properties)
    running = [
        f"{mark.version.writer} ({mark.checkpoint.shard.stream_name})"
        for mark in single_readers(rows, keys)
        if not mark.checkpoint.progress.is_ended
    ]
    if running:
        raise click.ClickException(
            f"This reader has not noted that it has stopped: {', '.join(running)}. Stop it first. "
            "If it has crashed, use --force."
        )
    held = {key: rows[key].version for key in keys if key in rows and lease_of(rows[key]).holder}
    if not held:
        return rows
    seconds = LeaseConfig.from_properties(properties).failover_seconds
    say(f"Waiting {seconds:g} s to see whether workers renew these leases ...")
    await SystemClock().sleep(seconds)
    rows = await load_rows(store, properties)
    moving = [
        f"{key} ({owner_of(rows[key])})"
        for key, version in held.items()
        if key in rows and rows[key].version != version
    ]
    if moving:
        raise click.ClickException(
            f"These shards are being read: {', '.join(sorted(moving)):.500}. Stop their workers "
            "first; with --force they lose the shards."
        )
    return rows
