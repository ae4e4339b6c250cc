"""The commands ``leases list`` and ``leases watch``, and the table of rows that all have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click
from attrs import asdict
from attrs.filters import exclude
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from kinesis_publishers.checkpoints.stored_form import instant_text, progress_fields
from kinesis_publishers.cli.leases.rows import (
    lease_options,
    load_rows,
    load_shards,
    open_store,
    owner_of,
    shards_of,
)
from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.console import (
    new_table,
    output_console,
    print_json_lines,
    print_rich,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import describe_position, format_behind, format_bytes
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.leases.rules import Rows, lease_of
from kinesis_publishers.model import (
    Checkpoint,
    PositionType,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
)

if TYPE_CHECKING:
    from rich.table import Table

_NOTHING: Final = "The application has stored nothing for these streams."
_PERIOD_SECONDS: Final = 1.0


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
    rows = run_until_signal(lambda: load_shards(properties))
    if as_json:
        print_json_lines(row_fields(row) for row in rows.values())
    elif rows:
        print_rich(row_table(rows, SystemClock().now()))
    else:
        say(_NOTHING)


@click.command("watch", cls=CleanCommand)
@lease_options
def watch_command(properties: Properties) -> None:
    """Show workers, shards, how far behind they are, and how they move, until Ctrl-C.

    A shard is as far behind as its stored progress is old: it grows between two checkpoints.

    \b
    Examples:
      kinesis-publishers leases watch --config my.properties
    """
    run_until_signal(lambda: watch(properties, output_console(), SystemClock()))


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
        # JSON has no numbers of this size.
        **asdict(lease_of(row), filter=exclude("hash_range")),
        "version": row.version.number,
        "writer": row.version.writer,
    }


def describe_progress(progress: ShardProgress) -> str:
    """Return a position in words: the last processed record, unless it says something else."""
    if progress.is_ended:
        return "SHARD_END"
    position = progress.position
    is_next = position.type is PositionType.AT_SEQUENCE_NUMBER and progress.processed is None
    return f"{'at ' if is_next else ''}{describe_position(position)}"


def row_table(
    rows: Rows, now: datetime, new: Mapping[ShardKey, Checkpoint] = MappingProxyType({})
) -> Table:
    """Return a table of rows, with the positions of those that are ``new``."""
    headings = ("Shard", "Owner", "Behind", "Bytes/s", "Parents", "Version", "Position")
    table = new_table(*headings, *(["New position"] if new else []), no_wrap=True)
    has_one_stream = len({key.stream_arn for key in rows}) == 1
    for key, row in rows.items():
        lease, progress = lease_of(row), row.checkpoint.progress
        as_of, rate = None if progress.is_ended else progress.as_of, lease.bytes_per_second
        table.add_row(
            key.shard_id if has_one_stream else str(key),
            owner_of(row),
            format_behind(None if as_of is None else max(0.0, (now - as_of).total_seconds())),
            "" if rate is None else format_bytes(rate),
            ", ".join(lease.parents),
            str(row.version.number),
            describe_progress(progress),
            *([describe_progress(new[key].progress)] if key in new else []),
        )
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
                        move = f"{now:%H:%M:%S}  {key}  {before} => {owners[key]}"
                        live.console.print(Text(move))
                live.update(_drawn(rows, now), refresh=True)
                await clock.sleep(_PERIOD_SECONDS)


def _drawn(rows: Rows, now: datetime) -> RenderableType:
    if not rows:
        return Text(_NOTHING)
    running = {key: row for key, row in rows.items() if not row.checkpoint.progress.is_ended}
    ended = Text(f"and {len(rows) - len(running)} shards that have ended")
    return Group(_workers(running), row_table(running, now), ended)


def _workers(rows: Rows) -> Table:
    leases, leaving, rates = Counter[str](), Counter[str](), Counter[str]()
    for lease in map(lease_of, rows.values()):
        holder = lease.holder or "-"
        leases[holder] += 1
        leaving[holder] += lease.leaving is not None
        rates[holder] += lease.bytes_per_second or 0
    table = new_table("Worker", "Shards", "Hands over", "Bytes/s", no_wrap=True)
    for worker, count in sorted(leases.items()):
        handed = str(leaving[worker] or "")
        table.add_row(worker, str(count), handed, format_bytes(rates[worker]))
    return table
