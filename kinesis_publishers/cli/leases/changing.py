"""The commands ``leases release`` and ``leases reset``, and how rows are changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import click
from attrs import evolve

from kinesis_publishers.assembly import open_control
from kinesis_publishers.checkpoints.stored_progress import FOUND_LATER
from kinesis_publishers.cli.leases.rows import (
    lease_options,
    listed_shards,
    load_rows,
    load_shards,
    open_store,
    owner_of,
    row_table,
    save,
    settled_rows,
    shards_of,
    single_readers,
)
from kinesis_publishers.cli.shared.commands import Checked, CleanCommand, confirm, yes_option
from kinesis_publishers.cli.shared.console import print_rich, say
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import iso_utc
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.config.timestamps import parse_timestamp
from kinesis_publishers.engine.lineage import descendants, pinned_progress
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.leases.rules import Rows, lease_of
from kinesis_publishers.model import (
    Checkpoint,
    PositionType,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
)

Plan: TypeAlias = Callable[[Rows], dict[ShardKey, Checkpoint]]

_OF_ONE_SHARD: Final = (PositionType.AT_SEQUENCE_NUMBER, PositionType.AFTER_SEQUENCE_NUMBER)
# More than enough: a worker writes a row every few seconds.
_MOST_TRIES: Final = 10


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


@click.command(cls=CleanCommand)
@click.argument("shards", nargs=-1, metavar="[SHARD]...")
@click.option("--owner", metavar="NAME", help="All shards that this worker has, or gets.")
@click.option("--all", "is_all", is_flag=True, help="All shards.")
@yes_option
@lease_options
def release(
    shards: tuple[str, ...],
    owner: str | None,
    is_all: bool,
    yes: bool,
    properties: Properties,
) -> None:
    """Take each SHARD from its worker, so that any worker may take it.

    Its worker stops reading it with the next renewal, and what it has not checkpointed is repeated
    by the next one. A worker that is stopped in order releases its shards by itself.

    \b
    Examples:
      kinesis-publishers leases release shardId-000000000003 --config my.properties
      kinesis-publishers leases release --owner host-7/4711/5f3a --config my.properties --yes
    """
    _check_selection("SHARD, --owner and --all", shards, owner, is_all)
    chosen = _chosen(run_until_signal(lambda: load_shards(properties)), shards, owner)
    owned = {key: row for key, row in chosen.items() if lease_of(row).holder is not None}
    if not owned:
        say("None of these shards has an owner: nothing to do.")
        return
    if not yes:
        print_rich(row_table(owned, SystemClock().now()))
        confirm("Take these shards from their owners?", refusal="nothing was changed")

    def plan(rows: Rows) -> dict[ShardKey, Checkpoint]:
        same = [key for key in rows.keys() & owned if owner_of(rows[key]) == owner_of(owned[key])]
        return {key: _released(rows[key]) for key in same}

    written = run_until_signal(lambda: _rewrite(properties, plan))
    say(f"Released: {_names(written)}.")
    if kept := owned.keys() - written:
        raise click.ClickException(
            f"The owner has changed in between, and they were left alone: {_names(kept)}."
        )


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
@click.option("--force", is_flag=True, help="Also while workers read these shards.")
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
    _check_selection("SHARD and --all", shards, is_all)
    if position.type in _OF_ONE_SHARD and len(shards) != 1:
        raise click.UsageError(f"{position.type.value} is a position of one shard: name one.")
    rows, plan = run_until_signal(lambda: _plan_reset(properties, shards, position))
    new = plan(rows)
    if not new:
        say("These shards are at that position: nothing to do.")
        return
    changed = shards_of({key: rows[key] for key in new})
    print_rich(row_table(changed, SystemClock().now(), new))
    if not (yes or dry_run):
        confirm("Set these positions?", refusal="nothing was changed")
    unread = () if force else new
    written = run_until_signal(lambda: _rewrite(properties, plan, unread, is_dry_run=dry_run))
    say("Nothing was changed." if dry_run else f"Positions set: {len(changed.keys() & written)}.")


async def _plan_reset(
    properties: Properties, names: tuple[str, ...], position: StartingPosition
) -> tuple[Rows, Plan]:
    """Return the rows, and what changes in rows as they are when it is called."""
    async with open_control(properties) as control:
        streams, listed = await listed_shards(control)
        async with open_store(properties, streams) as store:
            rows = await load_rows(store, properties)
        now = control.clock.now()
    if position.timestamp is not None and position.timestamp > now:
        raise click.UsageError(f"--to: {iso_utc(position.timestamp)} lies in the future.")
    chosen = _chosen(rows, names).keys()
    if gone := chosen - listed.keys():
        say(f"Left out, for they have left the retention: {_names(gone)}.")
    return rows, lambda current: reset_rows(current, chosen & listed.keys(), position, listed, now)


def _check_selection(names: str, *ways: object) -> None:
    if sum(map(bool, ways)) != 1:
        raise click.UsageError(f"Choose shards by one of {names}.")


def _chosen(
    rows: Rows, names: Collection[str], owner: str | None = None
) -> dict[ShardKey, StoredCheckpoint]:
    """Return the rows of the shards with these ``names``, or those of an ``owner``, or all."""
    found = shards_of(rows)
    ids = [key.shard_id for key in found]
    for name in names:
        if ids.count(name) > 1:
            raise click.UsageError(f"Several streams have a shard {name}: choose one by --stream.")
        if name not in ids:
            known = ", ".join(ids) or "none"
            raise click.UsageError(f"{name} has no row; these shards have one: {known:.500}.")
    return {
        key: row
        for key, row in found.items()
        if (not names or key.shard_id in names)
        and owner in (None, lease_of(row).owner, lease_of(row).leaving)
    }


async def _rewrite(
    properties: Properties,
    plan: Plan,
    unread: Collection[ShardKey] = (),
    *,
    is_dry_run: bool = False,
) -> set[ShardKey]:
    """Write what ``plan`` makes of the rows; return which ones.

    Nothing is written while a worker reads ``unread``, or has changed a row in between. Without
    these, such a row is read again, and ``plan`` decides again.
    """
    written: set[ShardKey] = set()
    tries = 1 if unread else _MOST_TRIES
    async with open_store(properties) as store:
        rows = await settled_rows(store, properties, unread)
        while not is_dry_run:
            new, tries = plan(rows), tries - 1
            try:
                await save(store, rows, new.values())
                return written | new.keys()
            except StaleCheckpointError as refused:
                if not tries:
                    raise
                # The others have been written.
                written |= refused.written.keys()
            rows = await load_rows(store, properties)
        return written


def _released(row: StoredCheckpoint) -> Checkpoint:
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
    new = {
        key: one
        for key, target in sorted(targets.items(), key=lambda one: str(one[0]))
        if (one := evolve(_released(rows[key]), progress=target)) != rows[key].checkpoint
    }
    # As their owner: a single reader of the streams is refused, and the next one begins at once.
    marks = [mark.checkpoint for mark in single_readers(rows, new)]
    return new | {mark.shard: evolve(mark, progress=FOUND_LATER.ended()) for mark in marks}


def _names(keys: Iterable[ShardKey]) -> str:
    return ", ".join(sorted(map(str, keys)))
