"""The command ``leases import``: begins where another program has stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from attrs import evolve

from kinesis_publishers.assembly import open_control
from kinesis_publishers.checkpoints.stored_progress import FOUND_LATER, STREAM
from kinesis_publishers.cli.leases.foreign import (
    ForeignRow,
    Source,
    is_endpoint,
    is_redis,
    read_bento,
    read_checkpoints,
    read_harlow,
    read_kcl,
)
from kinesis_publishers.cli.leases.rows import (
    application_option,
    describe_progress,
    lease_properties,
    listed_shards,
    open_store,
    without_creation,
)
from kinesis_publishers.cli.shared.commands import CleanCommand, read_file
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import new_table, print_rich, say
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.config import (
    CheckpointConfig,
    LeaseConfig,
    Properties,
    StreamsConfig,
)
from kinesis_publishers.engine.lineage import generations, starting_progress
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointWrite,
    HashRange,
    Lease,
    Shard,
    ShardKey,
    ShardProgress,
    StreamIdentity,
)

if TYPE_CHECKING:
    from rich.table import Table

_READERS: Final = {
    "kcl": read_kcl,
    "zio": read_kcl,
    "bento": read_bento,
    "harlow": read_harlow,
    "checkpoints": read_checkpoints,
}
_CHECKPOINTS: Final = "checkpoints"
_SHOWN: Final = 5


@click.command("import", cls=CleanCommand)
@click.option(
    "--from",
    "program",
    type=click.Choice(list(_READERS)),
    required=True,
    help="Whose checkpoints: the Kinesis Client Library's, zio-kinesis's, Bento's (also Redpanda "
    "Connect's), harlow/kinesis-consumer's, or those of this framework in another store.",
)
@click.option("--table", metavar="NAME", help="Its table; of kcl and zio: as its application.")
@click.option(
    "--url",
    metavar="URL",
    help="Where its table is, if not in AWS: of harlow a database or a Redis; or an endpoint of "
    "DynamoDB.",
)
@click.option(
    "--from-application", metavar="NAME", help="Its application; as the own one unless given."
)
@click.option(
    "--from-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Of checkpoints: the .properties file with which they were written.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be taken, and change nothing.")
@click.option("--force", is_flag=True, help="Replace rows that the application has already.")
@application_option
@connection_options
def import_command(
    program: str,
    table: str | None,
    url: str | None,
    from_application: str | None,
    from_config: Path | None,
    dry_run: bool,
    force: bool,
    application: str | None,
    connection: Connection,
) -> None:
    """Take over the checkpoints that another program has stored, which is stopped.

    An ancestor of a shard that has a checkpoint counts as read to its end; other shards without one
    begin at TRIM_HORIZON. What the other program has stored stays as it is.

    \b
    Examples:
      kinesis-publishers leases import --from kcl --table billing --config my.properties --dry-run
      kinesis-publishers leases import --from harlow --url redis://localhost --config my.properties
    """
    _check_usage(program, table, url, from_config)
    properties = lease_properties(connection, application)
    former = properties
    if from_config is not None:
        former = _former_properties(from_config, from_application, properties)
    name = from_application or CheckpointConfig.from_properties(properties).application or ""
    source = Source(properties=former, application=name, table=table or name, url=url or "")
    run_until_signal(
        lambda: _import(program, source, properties, is_dry_run=dry_run, replaces=force)
    )


def _check_usage(
    program: str, table: str | None, url: str | None, from_config: Path | None
) -> None:
    if url is not None and program != "harlow" and not is_endpoint(url):
        raise click.UsageError(f"{program} has a table in DynamoDB: --url is no https:// endpoint.")
    if (from_config is not None) != (program == _CHECKPOINTS):
        raise click.UsageError(
            "--from checkpoints and --from-config belong together: its file says where they are."
        )
    if program in ("bento", "harlow") and table is None and not is_redis(url or ""):
        raise click.UsageError(f"Name the table of {program} with --table.")


def _former_properties(path: Path, application: str | None, properties: Properties) -> Properties:
    """Return the properties with which checkpoints of ours were written, for the same streams."""
    more = {StreamsConfig.names.full_key: properties.get(StreamsConfig.names)}
    if application is not None:
        more[CheckpointConfig.application.full_key] = application
    former = Connection(config=path, content=read_file(path)).properties_without_reading(more)
    return without_creation(former)


async def _import(
    program: str, source: Source, properties: Properties, *, is_dry_run: bool, replaces: bool
) -> None:
    async with open_control(properties) as control:
        streams, listed = await listed_shards(control)
        clock = control.clock
    rows = await _READERS[program](evolve(source, streams=streams, clock=clock))
    named = {row.shard: row for row in rows if row.shard in listed}
    _warn_of_strangers([row.name for row in rows if row.shard not in listed])
    taken = imported(listed, {key: row.progress for key, row in named.items()})
    if not taken:
        raise click.ClickException("No row is about a shard of these streams: nothing to import.")
    for stream in streams:
        if stream.arn not in {key.stream_arn for key in taken}:
            say(f"Warning: no row is about the stream {stream.name}: it is left out.")
    print_rich(_table(taken, named))
    async with open_store(properties, streams) as store:
        stored = await store.load()
        there = sorted(map(str, taken.keys() & stored.keys()))
        if there and not replaces:
            raise click.ClickException(
                f"The application has rows for {len(there)} of these shards, as {there[0]}: import "
                "into a new application, or replace them with --force."
            )
        if is_dry_run:
            say("Nothing was changed.")
            return
        for batch in _batches(taken, listed, streams, properties):
            await store.save(
                [
                    CheckpointWrite(
                        checkpoint=one,
                        expected=stored[one.shard].version if one.shard in stored else None,
                    )
                    for one in batch
                ]
            )
    say(f"Imported: {len(taken)} shards.")


def imported(
    listed: Mapping[ShardKey, Shard], named: Mapping[ShardKey, ShardProgress]
) -> dict[ShardKey, ShardProgress]:
    """Return where each shard begins of the streams of which some are ``named``."""
    streams = {key.stream_arn for key in named}
    shards = [shard for key, shard in listed.items() if key.stream_arn in streams]
    return {**named, **starting_progress(shards, named, None)}


def _batches(
    taken: Mapping[ShardKey, ShardProgress],
    listed: Mapping[ShardKey, Shard],
    streams: Sequence[StreamIdentity],
    properties: Properties,
) -> Iterator[list[Checkpoint]]:
    """Yield the rows to write: parents first, and last of all that their streams have begun.

    If this is interrupted, the streams have not begun, and nothing is taken for read.
    """
    created_at = {one.arn: one.created_at for one in streams}
    has_leases = LeaseConfig.from_properties(properties).is_enabled
    for generation in generations(listed[key] for key in taken):
        yield [
            Checkpoint(
                shard=one.key,
                stream_created_at=created_at[one.stream_arn],
                progress=taken[one.key],
                lease=_lease(one) if has_leases else None,
            )
            for one in generation
        ]
    arns = sorted({key.stream_arn for key in taken})
    yield [
        Checkpoint(
            shard=ShardKey(arn, STREAM), stream_created_at=created_at[arn], progress=FOUND_LATER
        )
        for arn in arns
    ]


def _lease(shard: Shard) -> Lease:
    parents = tuple(key.shard_id for key in shard.parent_keys)
    return Lease(parents=parents, hash_range=HashRange.of(shard))


def _table(taken: Mapping[ShardKey, ShardProgress], named: Mapping[ShardKey, ForeignRow]) -> Table:
    table = new_table("Shard", "Position", "Taken from", no_wrap=True)
    for key, progress in sorted(taken.items(), key=lambda one: str(one[0])):
        reason = "its descendants were read" if progress.is_ended else "no row: from its beginning"
        origin = named[key].name if key in named else reason
        table.add_row(str(key), describe_progress(progress), origin)
    return table


def _warn_of_strangers(names: Sequence[str]) -> None:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        say(
            f"Warning: left out, for their shards have left the retention or are of other streams: "
            f"{', '.join(names[:_SHOWN])}{more}."
        )
