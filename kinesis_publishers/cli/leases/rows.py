"""The rows of an application: which of them a command means, and how they are changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, TypeAlias

import click
from attrs import evolve, frozen

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.assembly import ControlServices, open_checkpoint_store, open_control
from kinesis_publishers.checkpoints.stored_progress import FOUND_LATER, STREAM
from kinesis_publishers.cli.shared.connection import Connection
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.cli.shared.formats import describe_position
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    LeaseConfig,
    Properties,
    SqlCheckpointConfig,
    StreamsConfig,
)
from kinesis_publishers.engine.lineage import descendants, pinned_progress
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointWrite,
    Lease,
    PositionType,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
    StreamIdentity,
)

Rows: TypeAlias = Mapping[ShardKey, StoredCheckpoint]
Plan: TypeAlias = Callable[[Rows], dict[ShardKey, Checkpoint]]

# More than enough: a worker writes a row every few seconds.
_MOST_TRIES: Final = 10

application_option: Final = click.option(
    "--application",
    metavar="NAME",
    help=f"The application, as {CheckpointConfig.application.full_key}.",
)


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


def without_creation(properties: Properties) -> Properties:
    """Return ``properties`` with which no table is created."""
    store = properties.get(CheckpointConfig.store)
    if store == "sql":
        return properties.with_values({SqlCheckpointConfig.create_table: False})
    if store != "dynamodb":
        return properties
    # What a new table is like must not be said either.
    config = DynamoDbCheckpointConfig
    others = {*config.options()} - {config.table, config.endpoint_url}
    return properties.with_values({**dict.fromkeys(others), config.create_table: False})


@asynccontextmanager
async def open_store(
    properties: Properties, streams: Sequence[StreamIdentity] = ()
) -> AsyncIterator[CheckpointStore]:
    """Open the store; it learns of the streams, which are described only if it needs to know."""
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


def shards_of(rows: Rows) -> dict[ShardKey, StoredCheckpoint]:
    """Return the rows of shards, without those of whole streams."""
    return {key: row for key, row in rows.items() if key.shard_id != STREAM}


def describe_owner(lease: Lease) -> str:
    """Return who has a lease, and who gets it next."""
    names = [name for name in (lease.leaving, lease.owner) if name is not None]
    return " -> ".join(names) or "-"


def describe_progress(progress: ShardProgress) -> str:
    """Return a position in words: the last processed record, unless it says something else."""
    if progress.is_ended:
        return "SHARD_END"
    position = progress.position
    is_next = position.type is PositionType.AT_SEQUENCE_NUMBER and progress.processed is None
    return f"{'at ' if is_next else ''}{describe_position(position)}"


@frozen(kw_only=True)
class Selection:
    """Which shards the command line means: some, those of an owner, or all.

    Raises:
        UsageError: it means none of these, or more than one.
    """

    shards: tuple[str, ...] = ()
    owner: str | None = None
    is_all: bool = False

    def __attrs_post_init__(self) -> None:
        ways = (bool(self.shards), self.owner is not None, self.is_all)
        if sum(ways) != 1:
            raise click.UsageError("Name shards, or use one of the options that mean several.")

    def of(self, rows: Rows) -> dict[ShardKey, StoredCheckpoint]:
        """Return the rows of these shards.

        Raises:
            ClickException: a shard has no row, or two streams have one of this id.
        """
        found = shards_of(rows)
        if self.is_all:
            return found
        if self.owner is not None:
            return {
                key: row
                for key, row in found.items()
                if self.owner in (lease_of(row).owner, lease_of(row).leaving)
            }
        keys = [_named(text, found) for text in self.shards]
        return {key: found[key] for key in keys}


def _named(text: str, rows: Rows) -> ShardKey:
    found = [key for key in rows if text in (key.shard_id, f"{key.stream_name}:{key.shard_id}")]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{key.stream_name}:{key.shard_id}" for key in found)
        raise click.UsageError(f"There are several shards {text}: name one of {names}.")
    known = ", ".join(key.shard_id for key in rows) or "none"
    raise click.ClickException(f"The shard {text} has no row; these have one: {known:.500}.")


async def save(store: CheckpointStore, rows: Rows, new: Iterable[Checkpoint]) -> None:
    """Write ``new`` over ``rows``.

    Raises:
        StaleCheckpointError: another process has changed one of them in between.
    """
    writes = [CheckpointWrite(checkpoint=one, expected=rows[one.shard].version) for one in new]
    if writes:
        await store.save(writes)


async def rewrite(
    store: CheckpointStore, properties: Properties, plan: Plan
) -> dict[ShardKey, Checkpoint]:
    """Write what ``plan`` makes of the rows; return it.

    What another process has changed in between is read again, and ``plan`` decides again.

    Raises:
        StaleCheckpointError: that has happened too often.
    """
    written: dict[ShardKey, Checkpoint] = {}
    tried: dict[ShardKey, Checkpoint] = {}
    for left in reversed(range(_MOST_TRIES)):
        rows = await load_rows(store, properties)
        # If one write of several is refused, the others have happened.
        written |= {
            key: one for key, one in tried.items() if key in rows and rows[key].checkpoint == one
        }
        tried = plan(rows)
        try:
            await save(store, rows, tried.values())
            break
        except StaleCheckpointError:
            if not left:
                raise
    return written | tried


async def settled_rows(
    store: CheckpointStore, properties: Properties, keys: Collection[ShardKey], clock: Clock
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
        for mark in readers_without_leases(rows, keys)
        if not mark.checkpoint.progress.is_ended
    ]
    if running:
        raise click.ClickException(
            f"This reader has not noted that it has stopped: {', '.join(running)}. Stop it first. "
            "If it has crashed, use --force."
        )
    held = [key for key in keys if key in rows and lease_of(rows[key]).holder is not None]
    if not held:
        return rows
    seconds = LeaseConfig.from_properties(properties).failover_seconds
    say(f"Waiting {seconds:g} s to see whether workers renew these leases ...")
    await clock.sleep(seconds)
    before, rows = rows, await load_rows(store, properties)
    moving = {
        f"{key} ({describe_owner(lease_of(rows[key]))})"
        for key in held
        if key in rows and rows[key].version != before[key].version
    }
    if moving:
        raise click.ClickException(
            f"These shards are being read: {', '.join(sorted(moving)):.500}. Stop their workers "
            "first; with --force they lose the shards."
        )
    return rows


def released(row: StoredCheckpoint) -> Checkpoint:
    """Return the checkpoint of ``row`` without an owner."""
    lease = row.checkpoint.lease
    free = None if lease is None else evolve(lease, owner=None, leaving=None)
    return evolve(row.checkpoint, lease=free)


def reset_rows(
    rows: Rows,
    selected: Collection[ShardKey],
    position: StartingPosition,
    listed: Mapping[ShardKey, Shard],
    now: datetime,
) -> dict[ShardKey, Checkpoint]:
    """Return what changes when ``selected`` are read from ``position``; they lose their owners.

    Where a shard that has ended is read again, its descendants are read again after it, from their
    beginnings: otherwise its records would come after those that follow them. At the tip there is
    nothing of it to read, and its descendants stay where they are.
    """
    progress = pinned_progress(ShardProgress(position=position), now)
    selected = rows.keys() & selected
    targets = dict.fromkeys(selected, progress)
    if position.type is not PositionType.LATEST:
        again = [key for key in selected if rows[key].checkpoint.progress.is_ended]
        later = descendants(again, listed) & rows.keys()
        targets |= dict.fromkeys(later - targets.keys(), FOUND_LATER)
    # One that has an owner changes in any case: that one may have read further than it has stored.
    return {
        key: new
        for key, target in sorted(targets.items(), key=lambda one: str(one[0]))
        if (new := evolve(released(rows[key]), progress=target)) != rows[key].checkpoint
    }


def readers_without_leases(rows: Rows, keys: Iterable[ShardKey]) -> list[StoredCheckpoint]:
    """Return the rows of the streams of ``keys`` that one reader owns as a whole."""
    leased = {key.stream_arn for key, row in rows.items() if row.checkpoint.lease is not None}
    marks = {ShardKey(key.stream_arn, STREAM) for key in keys if key.stream_arn not in leased}
    return [rows[key] for key in sorted(marks, key=str) if key in rows]


def taken_over(mark: StoredCheckpoint) -> Checkpoint:
    """Return the row of a stream that refuses its reader, and lets the next one begin at once."""
    return evolve(mark.checkpoint, progress=FOUND_LATER.ended())
