"""The rows of an application: where they are, and who reads; ``leases list`` and ``watch``."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click
from attrs import asdict
from attrs.filters import exclude
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.assembly import open_checkpoint_store, open_control
from kinesis_publishers.checkpoints.stored_form import instant_text, progress_fields
from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import (
    add_row,
    new_table,
    output_console,
    print_json_lines,
    print_rich,
    printable,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import describe_position, format_behind, format_bytes
from kinesis_publishers.clock import Clock, SystemClock
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
    WHOLE_STREAM,
    Checkpoint,
    PositionType,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
)

_T = TypeVar("_T")

_CREATES: Final = {
    "sql": SqlCheckpointConfig.create_table,
    "dynamodb": DynamoDbCheckpointConfig.create_table,
}
_PLACES: Final = {DynamoDbCheckpointConfig.table, DynamoDbCheckpointConfig.endpoint_url}
_PERIOD_SECONDS: Final = 1.0


def lease_options(command: Callable[..., _T]) -> Callable[..., _T]:
    """Give ``command`` the common options as ``properties``; see :func:`connection_options`."""
    application = CheckpointConfig.application.full_key

    @click.option("--application", metavar="NAME", help=f"The application; sets {application}.")
    @connection_options
    @functools.wraps(command)
    def with_properties(*args: Any, connection: Connection, **options: Any) -> _T:
        properties = connection.properties_without_reading()
        config = CheckpointConfig.from_properties(properties)
        if config.application is None:
            raise click.UsageError(
                f"Nothing names the application: use --application, or set {application}."
            )
        if config.store == "memory":
            raise click.UsageError(
                f"{CheckpointConfig.store.full_key} is memory, which ends with its process: "
                "there is nothing to show or to change."
            )
        # A person waits, as for the service.
        retries = CheckpointConfig.retry.max_retries
        if not properties.is_given(retries):
            properties = properties.with_values({retries: 3})
        return command(*args, properties=properties, **options)

    return with_properties


@asynccontextmanager
async def open_store(
    properties: Properties, *, creates: bool = False
) -> AsyncIterator[CheckpointStore]:
    """Open the store; unless this ``creates`` a table, it must exist."""
    created_by = _CREATES.get(properties.get(CheckpointConfig.store))
    if created_by and not creates:
        # The options of a new table must not be set then.
        of_new_tables = dict.fromkeys({*DynamoDbCheckpointConfig.options()} - _PLACES)
        properties = properties.with_values({**of_new_tables, created_by: False})
    async with open_checkpoint_store(properties, clock=SystemClock()) as store:
        # The others need no call to Kinesis.
        if (name_streams := getattr(store, "name_streams", None)) is not None:
            async with open_control(properties) as control:
                name_streams(await control.streams())
        yield store


async def load_rows(store: CheckpointStore, properties: Properties) -> Rows:
    """Return the rows of the streams that the properties name, with those of whole streams."""
    streams = {one.name: one.arn for one in StreamsConfig.from_properties(properties).streams}
    found = await store.load()
    return {
        key: found[key]
        for key in sorted(found, key=str)
        if key.stream_name in streams and streams[key.stream_name] in (None, key.stream_arn)
    }


async def load_shards(properties: Properties) -> Rows:
    async with open_store(properties) as store:
        return shards_of(await load_rows(store, properties))


def shards_of(rows: Mapping[ShardKey, _T]) -> dict[ShardKey, _T]:
    """Return the rows of shards, without those of whole streams."""
    return {key: row for key, row in rows.items() if key.shard_id != WHOLE_STREAM}


def owner_of(row: StoredCheckpoint) -> str:
    """Return who has a lease, and who gets it next."""
    lease = lease_of(row)
    return " -> ".join(name for name in (lease.leaving, lease.owner) if name is not None) or "-"


def single_readers(rows: Rows, keys: Iterable[ShardKey]) -> list[StoredCheckpoint]:
    """Return the rows of the streams of ``keys`` that one reader owns as a whole."""
    leased = {key.stream_arn for key, row in rows.items() if row.checkpoint.lease is not None}
    marks = {ShardKey(key.stream_arn, WHOLE_STREAM) for key in keys if key.stream_arn not in leased}
    return [rows[key] for key in sorted(marks, key=str) if key in rows]


async def settled_rows(
    store: CheckpointStore, properties: Properties, keys: Collection[ShardKey]
) -> Rows:
    """Return the rows; raises ``ClickException`` if a worker reads one of ``keys``, or may do so.

    A live worker renews its leases within the failover time: this waits for it, and asks no clock
    of another machine.
    """
    rows = await load_rows(store, properties)
    before = {key: rows[key].version for key in keys if key in rows}
    if any(lease_of(rows[key]).holder for key in before):
        seconds = LeaseConfig.from_properties(properties).failover_seconds
        say(f"Waiting {seconds:g} s to see whether workers renew these leases ...")
        await SystemClock().sleep(seconds)
        rows = await load_rows(store, properties)
    busy = [
        f"{key} ({owner_of(rows[key])})"
        for key in keys
        # Also one that a worker has begun to read meanwhile.
        if key in rows and rows[key].version != before.get(key)
    ] + [
        f"{mark.checkpoint.shard.stream_name} ({mark.version.writer}, which has not noted that it "
        "has stopped)"
        for mark in single_readers(rows, keys)
        if not mark.checkpoint.progress.is_ended
    ]
    if busy:
        raise click.ClickException(
            f"These are being read: {', '.join(sorted(busy)):.500}. Stop the workers first; leases "
            "reset --force takes the shards from them, and from a reader that has crashed."
        )
    return rows


@click.command("list", cls=CleanCommand)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per shard.")
@lease_options
def list_command(as_json: bool, properties: Properties) -> None:
    """List the shards of an application: owner, throughput, parents, version and position.

    \b
    Examples:
      kinesis-publishers leases list --config my.properties
      kinesis-publishers leases list --config my.properties --json | jq 'select(.owner == null)'
    """
    rows = run_until_signal(load_shards(properties))
    if as_json:
        print_json_lines(row_fields(row) for row in rows.values())
    elif rows:
        print_rich(row_table(rows, SystemClock().now()))
    else:
        say(_no_rows(properties))


@click.command("watch", cls=CleanCommand)
@lease_options
async def watch_command(properties: Properties) -> None:
    """Show workers, shards, how far behind they are, and how they move, until Ctrl-C.

    A shard is as far behind as its stored progress is old: it grows between two checkpoints.

    \b
    Examples:
      kinesis-publishers leases watch --config my.properties
    """
    await watch(properties, output_console(), SystemClock())


def _no_rows(properties: Properties) -> str:
    config = CheckpointConfig.from_properties(properties)
    streams = ", ".join(one.name for one in StreamsConfig.from_properties(properties).streams)
    return (
        f"{CheckpointConfig.store.full_key} = {config.store} has no rows of the application "
        f"{config.application} for {streams}: no worker has started yet, or its properties name "
        "another store."
    )


def row_fields(row: StoredCheckpoint) -> dict[str, object]:
    """Return a row as it stands in JSON, which ``leases import`` reads."""
    checkpoint, shard = row.checkpoint, row.checkpoint.shard
    return {
        "stream_name": shard.stream_name,
        "stream_arn": shard.stream_arn,
        "stream_created_at": instant_text(checkpoint.stream_created_at),
        "shard_id": shard.shard_id,
        **progress_fields(checkpoint.progress),
        "is_ended": checkpoint.progress.is_ended,
        # JSON has no numbers of this size; and what is imported begins by event time as it comes.
        **asdict(lease_of(row), filter=exclude("hash_range", "watermark", "is_idle", "is_at_tip")),
        "version": row.version.number,
        "writer": row.version.writer,
    }


def describe_progress(progress: ShardProgress) -> str:
    """Return the last processed record, or the words for another position."""
    if progress.is_ended:
        return "SHARD_END"
    position = progress.position
    is_next = position.type is PositionType.AT_SEQUENCE_NUMBER and progress.processed is None
    return f"{'at ' if is_next else ''}{describe_position(position)}"


def row_table(
    rows: Rows, now: datetime, new: Mapping[ShardKey, Checkpoint] = MappingProxyType({})
) -> Table:
    """Return a table of rows, with the new positions if one of ``new`` has another position."""
    moves = any(one.progress != rows[key].checkpoint.progress for key, one in new.items())
    headings = ("Shard", "Owner", "Behind", "Bytes/s", "Parents", "Version", "Position")
    table = new_table(*headings, *(["New position"] if moves else []), no_wrap=True)
    has_one_stream = len({key.stream_arn for key in rows}) == 1
    for key, row in rows.items():
        lease, progress = lease_of(row), row.checkpoint.progress
        as_of, rate = None if progress.is_ended else progress.as_of, lease.bytes_per_second
        behind = format_behind(None if as_of is None else max(0.0, (now - as_of).total_seconds()))
        add_row(
            table,
            key.shard_id if has_one_stream else str(key),
            owner_of(row),
            # A single reader writes nothing for hours about a shard without records.
            behind if as_of is None or row.checkpoint.lease else f"up to {behind}",
            "" if rate is None else format_bytes(rate),
            ", ".join(lease.parents),
            str(row.version.number),
            describe_progress(progress),
            *([describe_progress(new[key].progress)] if moves else []),
        )
    for column in (table.columns[0], table.columns[2]):
        # On a narrow terminal others are cut: all ids begin alike.
        column.min_width = max(len(str(cell)) for cell in column.cells)
    return table


async def watch(properties: Properties, console: Console, clock: Clock) -> None:
    """Show the leases once a second, and above them how they have moved, until cancelled."""
    owners: dict[ShardKey, str] = {}
    # The last state stays on the terminal.
    async with open_store(properties) as store:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                rows, now = shards_of(await load_rows(store, properties)), clock.now()
                for key, row in rows.items():
                    before, owners[key] = owners.get(key, owner_of(row)), owner_of(row)
                    if before != owners[key]:
                        move = f"{now:%H:%M:%S}  {key}  {owners[key]}, was {before}"
                        live.console.print(Text(printable(move)))
                live.update(_drawn(rows, now) if rows else _no_rows(properties), refresh=True)
                await clock.sleep(_PERIOD_SECONDS)


def _drawn(rows: Rows, now: datetime) -> RenderableType:
    running = {key: row for key, row in rows.items() if not row.checkpoint.progress.is_ended}
    shards, rates = Counter[str](), Counter[str]()
    for lease in map(lease_of, running.values()):
        holder = lease.holder or "-"
        shards[holder] += 1
        rates[holder] += lease.bytes_per_second or 0
    cells = ((one, str(shards[one]), format_bytes(rates[one])) for one in sorted(shards))
    workers = new_table("Worker", "Shards", "Bytes/s", rows=cells, no_wrap=True)
    ended = len(rows) - len(running)
    more = [f"and {ended} that have ended"] if ended else []
    return Group(workers, row_table(running, now), *more)
