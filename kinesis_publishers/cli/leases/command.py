"""The commands ``leases list``, ``release`` and ``reset``; ``import`` has a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import click

from kinesis_publishers.assembly import open_control
from kinesis_publishers.checkpoints.stored_progress import STREAM
from kinesis_publishers.cli.leases.importing import import_command
from kinesis_publishers.cli.leases.rows import (
    Plan,
    Rows,
    Selection,
    application_option,
    describe_owner,
    describe_progress,
    lease_properties,
    listed_shards,
    load_rows,
    open_store,
    readers_without_leases,
    released,
    reset_rows,
    rewrite,
    save,
    settled_rows,
    shards_of,
    taken_over,
    without_creation,
)
from kinesis_publishers.cli.leases.watching import watch
from kinesis_publishers.cli.shared.commands import Checked, CleanGroup, confirm, yes_option
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import (
    new_table,
    output_console,
    print_json_lines,
    print_rich,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import format_bytes, iso_utc
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import (
    Checkpoint,
    PositionType,
    SequenceNumber,
    ShardKey,
    StartingPosition,
    StoredCheckpoint,
)

if TYPE_CHECKING:
    from rich.table import Table

_OF_ONE_SHARD: Final = (PositionType.AT_SEQUENCE_NUMBER, PositionType.AFTER_SEQUENCE_NUMBER)


def _position(text: str) -> StartingPosition:
    name, _, value = text.partition(":")
    kind = PositionType(name.upper())
    if kind is PositionType.AT_TIMESTAMP:
        return StartingPosition.at_timestamp(parse_timestamp(value))
    return StartingPosition(kind, SequenceNumber(value) if value else None)


_POSITION: Final = Checked(
    "position",
    _position,
    "got {}, expected TRIM_HORIZON, LATEST, AT_TIMESTAMP:TIME, AT_SEQUENCE_NUMBER:NUMBER or "
    "AFTER_SEQUENCE_NUMBER:NUMBER.",
)


@click.group(cls=CleanGroup)
def leases() -> None:
    """Show and change which worker reads which shard, and how far.

    They are the rows of kinesis.checkpoint.application in kinesis.checkpoint.store, for the streams
    that the properties name; those of an application with one reader have no owner.
    """


leases.add_command(import_command)


@leases.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per shard.")
@application_option
@connection_options
def list_command(as_json: bool, application: str | None, connection: Connection) -> None:
    """List the shards of an application: owner, position, parents, throughput and version.

    \b
    Examples:
      kinesis-publishers leases list --config my.properties
      kinesis-publishers leases list --config my.properties --json | jq 'select(.owner == null)'
    """
    properties = without_creation(lease_properties(connection, application))
    rows = shards_of(run_until_signal(lambda: _load(properties)))
    if as_json:
        print_json_lines(_fields(row) for row in rows.values())
    elif rows:
        print_rich(_list_table(rows))
    else:
        say("The application has stored nothing for these streams.")


@leases.command("watch")
@application_option
@connection_options
def watch_command(application: str | None, connection: Connection) -> None:
    """Show workers, shards, how far behind they are, and how they move, until Ctrl-C.

    A shard is as far behind as its stored progress is old: it grows between two checkpoints.

    \b
    Examples:
      kinesis-publishers leases watch --config my.properties
    """
    properties = without_creation(lease_properties(connection, application))
    run_until_signal(lambda: watch(properties, output_console(), SystemClock()))


@leases.command()
@click.argument("shards", nargs=-1, metavar="[SHARD]...")
@click.option("--owner", metavar="NAME", help="All shards that this worker has, or gets.")
@click.option("--all", "is_all", is_flag=True, help="All shards.")
@yes_option
@application_option
@connection_options
def release(
    shards: tuple[str, ...],
    owner: str | None,
    is_all: bool,
    yes: bool,
    application: str | None,
    connection: Connection,
) -> None:
    """Take each SHARD from its worker, so that any worker may take it.

    Its worker stops reading it with the next renewal, and what it has not checkpointed is repeated
    by the next one. A worker that is stopped in order releases its shards by itself.

    \b
    Examples:
      kinesis-publishers leases release shardId-000000000003 --config my.properties
      kinesis-publishers leases release --owner host-7/4711/5f3a --config my.properties --yes
    """
    selection = Selection(shards=shards, owner=owner, is_all=is_all)
    properties = without_creation(lease_properties(connection, application))
    chosen = selection.of(run_until_signal(lambda: _load(properties)))
    owned = {key: row for key, row in chosen.items() if lease_of(row).holder is not None}
    if not owned:
        say("None of these shards has an owner: nothing to do.")
        return
    if not yes:
        print_rich(_list_table(owned))
        confirm("Take these shards from their owners?", refusal="nothing was changed")
    written = run_until_signal(lambda: _release(properties, owned))
    say(f"Released: {_names(written)}.")
    if kept := owned.keys() - written.keys():
        raise click.ClickException(
            f"The owner has changed in between, and they were left alone: {_names(kept)}."
        )


@leases.command()
@click.argument("shards", nargs=-1, metavar="[SHARD]...")
@click.option("--all", "is_all", is_flag=True, help="All shards.")
@click.option(
    "--to",
    "position",
    type=_POSITION,
    required=True,
    metavar="POSITION",
    help="TRIM_HORIZON, LATEST (what arrives from now on), AT_TIMESTAMP:TIME (ISO-8601 or epoch "
    "s), or for one shard AT_SEQUENCE_NUMBER:NUMBER or AFTER_SEQUENCE_NUMBER:NUMBER.",
)
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.option("--force", is_flag=True, help="Also while workers read these shards.")
@yes_option
@application_option
@connection_options
def reset(
    shards: tuple[str, ...],
    is_all: bool,
    position: StartingPosition,
    dry_run: bool,
    force: bool,
    yes: bool,
    application: str | None,
    connection: Connection,
) -> None:
    """Set the position from which each SHARD is read, while no worker reads it.

    Where a shard that was read to its end is read again, the shards that continue it are read again
    as well, from their beginnings: the order of records holds.

    \b
    Examples:
      kinesis-publishers leases reset --all --to LATEST --config my.properties --dry-run
      kinesis-publishers leases reset --all --to AT_TIMESTAMP:2026-11-22T00:00:00Z --stream orders
    """
    selection = Selection(shards=shards, is_all=is_all)
    if position.type in _OF_ONE_SHARD and len(shards) != 1:
        raise click.UsageError(f"{position.type.value} is a position of one shard: name one.")
    properties = without_creation(lease_properties(connection, application))
    rows, plan = run_until_signal(lambda: _plan_reset(properties, selection, position))
    new = plan(rows)
    if not new:
        say("These shards are at that position: nothing to do.")
        return
    print_rich(_reset_table(rows, new))
    if dry_run:
        say("Nothing was changed.")
        return
    if not yes:
        confirm("Set these positions?", refusal="nothing was changed")
    written = run_until_signal(lambda: _reset(properties, plan, new, force=force))
    say(f"Positions set: {sum(key.shard_id != STREAM for key in written)}.")


async def _load(properties: Properties) -> Rows:
    async with open_store(properties) as store:
        return await load_rows(store, properties)


async def _release(properties: Properties, shown: Rows) -> dict[ShardKey, Checkpoint]:
    """Release the shards that still have the owner that was shown; return them."""

    def plan(rows: Rows) -> dict[ShardKey, Checkpoint]:
        return {
            key: released(rows[key])
            for key, row in shown.items()
            if key in rows and describe_owner(lease_of(rows[key])) == describe_owner(lease_of(row))
        }

    async with open_store(properties) as store:
        return await rewrite(store, properties, plan)


async def _plan_reset(
    properties: Properties, selection: Selection, position: StartingPosition
) -> tuple[Rows, Plan]:
    """Return the rows, and what changes in rows as they are when it is called."""
    async with open_control(properties) as control:
        streams, listed = await listed_shards(control)
        async with open_store(properties, streams) as store:
            rows = await load_rows(store, properties)
        now = control.clock.now()
    if position.timestamp is not None and position.timestamp > now:
        raise click.UsageError(f"--to: {iso_utc(position.timestamp)} lies in the future.")
    chosen = selection.of(rows)
    if gone := chosen.keys() - listed.keys():
        say(f"Left out, for they have left the retention: {_names(gone)}.")
    selected = chosen.keys() & listed.keys()
    return rows, lambda current: reset_rows(current, selected, position, listed, now)


async def _reset(
    properties: Properties, plan: Plan, shown: Collection[ShardKey], *, force: bool
) -> dict[ShardKey, Checkpoint]:
    def plan_with_readers(rows: Rows) -> dict[ShardKey, Checkpoint]:
        new = plan(rows)
        marks = readers_without_leases(rows, new)
        return {mark.checkpoint.shard: taken_over(mark) for mark in marks} | new if new else new

    async with open_store(properties) as store:
        if force:
            return await rewrite(store, properties, plan_with_readers)
        rows = await settled_rows(store, properties, shown, SystemClock())
        new = plan_with_readers(rows)
        await save(store, rows, new.values())
        return new


def _list_table(rows: Rows) -> Table:
    table = new_table("Shard", "Owner", "Position", "Parents", "Bytes/s", "Version", no_wrap=True)
    has_one_stream = len({key.stream_arn for key in rows}) == 1
    for key, row in rows.items():
        lease = lease_of(row)
        rate = lease.bytes_per_second
        table.add_row(
            key.shard_id if has_one_stream else str(key),
            describe_owner(lease),
            describe_progress(row.checkpoint.progress),
            ", ".join(lease.parents),
            "" if rate is None else format_bytes(rate),
            str(row.version.number),
        )
    return table


def _reset_table(rows: Rows, new: Mapping[ShardKey, Checkpoint]) -> Table:
    table = new_table("Shard", "Owner", "Position", "New position", no_wrap=True)
    for key, checkpoint in new.items():
        table.add_row(
            str(key),
            describe_owner(lease_of(rows[key])),
            describe_progress(rows[key].checkpoint.progress),
            describe_progress(checkpoint.progress),
        )
    return table


def _fields(row: StoredCheckpoint) -> dict[str, object]:
    checkpoint, lease = row.checkpoint, lease_of(row)
    progress, number = checkpoint.progress, checkpoint.progress.position.sequence_number
    timestamp, as_of = progress.position.timestamp, progress.as_of
    return {
        "stream_name": checkpoint.shard.stream_name,
        "stream_arn": checkpoint.shard.stream_arn,
        "shard_id": checkpoint.shard.shard_id,
        "owner": lease.owner,
        "leaving": lease.leaving,
        "position": progress.position.type.value,
        "sequence_number": number and number.sequence_number,
        "sub_sequence_number": number and number.sub_sequence_number,
        "timestamp": timestamp and iso_utc(timestamp),
        "as_of": as_of and iso_utc(as_of),
        "is_ended": progress.is_ended,
        "parents": lease.parents,
        "children": lease.children,
        "bytes_per_second": lease.bytes_per_second,
        "version": row.version.number,
        "writer": row.version.writer,
    }


def _names(keys: Iterable[ShardKey]) -> str:
    return ", ".join(sorted(map(str, keys)))
