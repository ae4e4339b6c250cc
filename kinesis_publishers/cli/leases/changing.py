"""The commands ``leases release`` and ``leases reset``, and how rows are changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import click
from attrs import evolve

from kinesis_publishers.cli.leases.rows import (
    lease_options,
    load_rows,
    load_shards,
    open_store,
    row_table,
    settled_rows,
    shards_of,
    single_readers,
)
from kinesis_publishers.cli.shared.commands import CleanCommand, checked, confirm, yes_option
from kinesis_publishers.cli.shared.connection import listed_shards
from kinesis_publishers.cli.shared.console import print_rich, say
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import iso_utc
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.engine.lineage import descendants, pinned_progress
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.leases.rules import Rows
from kinesis_publishers.model import (
    FOUND_LATER,
    Checkpoint,
    CheckpointWrite,
    PositionType,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
)

# The shards that lose their owners, and their new positions; ``None`` for the present ones.
Targets: TypeAlias = Mapping[ShardKey, ShardProgress | None]

# More than enough: a worker writes a row every few seconds.
_MOST_TRIES: Final = 10


def _position(text: str) -> StartingPosition:
    name, _, value = text.partition(":")
    kind = PositionType(name.upper())
    if kind is PositionType.AT_TIMESTAMP:
        return StartingPosition.at_timestamp(parse_timestamp(value))
    return StartingPosition(kind, SequenceNumber(value) if value else None)


_POSITION: Final = checked(
    _position,
    "got {}, expected TRIM_HORIZON, LATEST, AT_TIMESTAMP:TIME, AT_SEQUENCE_NUMBER:NUMBER or "
    "AFTER_SEQUENCE_NUMBER:NUMBER.",
)


@click.command(cls=CleanCommand)
@click.argument("shards", nargs=-1, metavar="[SHARD]...")
@click.option("--all", "is_all", is_flag=True, help="All shards.")
@yes_option
@lease_options
def release(shards: tuple[str, ...], is_all: bool, yes: bool, properties: Properties) -> None:
    """Take each SHARD from its worker, so that any worker may take it.

    Its worker stops reading it with the next renewal, and what it has not checkpointed is repeated
    by the next one. A worker that is stopped in order releases its shards by itself.

    \b
    Examples:
      kinesis-publishers leases release shardId-000000000003 --config my.properties
      kinesis-publishers leases release --all --config my.properties --yes
    """
    _check_selection(shards, is_all)
    rows = run_until_signal(load_shards(properties))
    targets = dict.fromkeys(_chosen(rows, shards))
    if changed := _agreed_changes(rows, targets, "Take these shards from their owners?", yes=yes):
        run_until_signal(_rewrite(properties, targets))
        say(f"Released: {len(changed)}.")


@click.command(cls=CleanCommand)
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
@click.option("--force", is_flag=True, help="Change shards that workers are reading, too.")
@yes_option
@lease_options
def reset(
    shards: tuple[str, ...],
    is_all: bool,
    position: StartingPosition,
    dry_run: bool,
    force: bool,
    yes: bool,
    properties: Properties,
) -> None:
    """Set the position from which each SHARD is read, while no worker reads it.

    Where a shard that was read to its end is read again, the shards that continue it are read again
    as well, from their beginnings: the order of records holds.

    \b
    Examples:
      kinesis-publishers leases reset --all --to LATEST --config my.properties --dry-run
      kinesis-publishers leases reset --all --to AT_TIMESTAMP:2026-11-22T00:00:00Z --stream orders
    """
    _check_selection(shards, is_all)
    if position.sequence_number is not None and len(shards) != 1:
        raise click.UsageError(f"{position.type.value} is a position of one shard: name one.")
    rows, targets = run_until_signal(_plan_reset(properties, shards, position))
    if changed := _agreed_changes(rows, targets, "Set these positions?", yes=yes or dry_run):
        # A dry run writes nothing, and is refused where the reset would be.
        written, unread = {} if dry_run else targets, () if force else targets
        run_until_signal(_rewrite(properties, written, unread))
        say("Nothing was changed." if dry_run else f"Positions set: {len(changed)}.")


async def _plan_reset(
    properties: Properties, names: Collection[str], position: StartingPosition
) -> tuple[Rows, Targets]:
    found, now = await listed_shards(properties)
    listed = {shard.key: shard for shards in found.values() for shard in shards}
    if position.timestamp is not None and position.timestamp > now:
        raise click.UsageError(f"--to: {iso_utc(position.timestamp)} lies in the future.")
    async with open_store(properties) as store:
        rows = await load_rows(store, properties)
    chosen = _chosen(rows, names)
    if gone := chosen.keys() - listed.keys():
        say(f"Left out, for they have left the retention: {', '.join(sorted(map(str, gone)))}.")
    return rows, reset_targets(chosen, position, listed, now)


def _check_selection(shards: Collection[str], is_all: bool) -> None:
    if bool(shards) == is_all:
        raise click.UsageError("Choose shards: name each SHARD, or use --all.")


def _chosen(rows: Rows, names: Collection[str]) -> Rows:
    found = shards_of(rows)
    ids = [key.shard_id for key in found]
    for name in names:
        if ids.count(name) > 1:
            raise click.UsageError(f"Several streams have a shard {name}: choose one by --stream.")
        if name not in ids:
            known = ", ".join(ids) or "none"
            raise click.UsageError(f"{name} has no row; these shards have one: {known:.500}.")
    return {key: row for key, row in found.items() if not names or key.shard_id in names}


def reset_targets(
    selected: Rows, position: StartingPosition, listed: Mapping[ShardKey, Shard], now: datetime
) -> dict[ShardKey, ShardProgress]:
    """Return where shards are read when ``selected`` are read from ``position``.

    If a shard that has ended is read again, its descendants are read again after it, from their
    beginnings: otherwise its records would come after later ones. At the tip nothing of it is read,
    and its descendants stay where they are.
    """
    again = [key for key, row in selected.items() if row.checkpoint.progress.is_ended]
    later = descendants(again, listed) if position.type is not PositionType.LATEST else ()
    progress = pinned_progress(ShardProgress(position=position), now)
    return dict.fromkeys(later, FOUND_LATER) | dict.fromkeys(selected.keys() & listed, progress)


def changes(rows: Rows, targets: Targets) -> dict[ShardKey, Checkpoint]:
    """Return what to write over ``rows``, as far as it changes them."""
    # A row with an owner changes in any case: the owner may have read further than it has stored.
    new = {
        key: one
        for key, row in rows.items()
        if key in targets and (one := _freed(row.checkpoint, targets[key])) != row.checkpoint
    }
    # As the owner would: a single reader of the streams is refused, the next one begins at once.
    marks = [mark.checkpoint for mark in single_readers(rows, new)]
    return new | {mark.shard: evolve(mark, progress=FOUND_LATER.ended()) for mark in marks}


def _freed(checkpoint: Checkpoint, progress: ShardProgress | None) -> Checkpoint:
    # By event time the next reader may begin earlier, too.
    cleared: Any = dict.fromkeys(("owner", "leaving", "watermark", "is_idle", "is_at_tip"))
    lease = checkpoint.lease and evolve(checkpoint.lease, **cleared)
    return evolve(checkpoint, lease=lease, progress=progress or checkpoint.progress)


def _agreed_changes(
    rows: Rows, targets: Targets, question: str, *, yes: bool
) -> dict[ShardKey, Checkpoint]:
    """Show the shards that change, ask, and return them."""
    new = shards_of(changes(rows, targets))
    if not new:
        say("Nothing would change: nothing to do.")
        return new
    print_rich(row_table({key: rows[key] for key in new}, SystemClock().now(), new))
    if not yes:
        confirm(question, refusal="nothing was changed")
    return new


async def _rewrite(
    properties: Properties, targets: Targets, unread: Collection[ShardKey] = ()
) -> None:
    """Change the rows, unless a worker reads one of ``unread``; repeat after a stale version."""
    async with open_store(properties) as store:
        for tries_left in reversed(range(_MOST_TRIES)):
            rows = await settled_rows(store, properties, unread)
            new = changes(rows, targets)
            if not new:
                return
            shards = shards_of(new)
            try:
                # First the marks of whole streams: a reader that has begun keeps its positions.
                for keys in filter(None, (new.keys() - shards.keys(), shards)):
                    await store.save([CheckpointWrite.over(rows, new[key]) for key in keys])
                return
            except StaleCheckpointError as refused:
                if not tries_left:
                    raise
                # What is written stays: a worker may have it by then.
                targets = {key: one for key, one in targets.items() if key not in refused.written}
