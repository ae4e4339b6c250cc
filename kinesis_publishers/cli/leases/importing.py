"""The command ``leases import``: begins where another program has stopped, or as in a backup."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import click
from attrs import evolve

from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.assembly import with_region
from kinesis_publishers.checkpoints.dynamodb import DynamoDbCheckpointStore
from kinesis_publishers.checkpoints.kcl_table import KclLeaseTable
from kinesis_publishers.checkpoints.stored_form import instant_text, progress_of
from kinesis_publishers.cli.leases.rows import (
    describe_progress,
    lease_options,
    open_store,
    row_fields,
    shards_of,
)
from kinesis_publishers.cli.shared.commands import CleanCommand, read_file
from kinesis_publishers.cli.shared.connection import listed_shards
from kinesis_publishers.cli.shared.console import new_table, print_rich, say
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import (
    AwsConfig,
    CheckpointConfig,
    DynamoDbCheckpointConfig,
    InitialPositionConfig,
    LeaseConfig,
    Properties,
)
from kinesis_publishers.engine.lineage import generations, pinned_progress, starting_progress
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.leases.rows import first_row
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointWrite,
    PositionType,
    Shard,
    ShardKey,
    ShardProgress,
    StreamIdentity,
)

# Where a row was found, and its fields as `leases list --json` prints them.
_Found: TypeAlias = tuple[str, Mapping[str, Any]]
_Reader: TypeAlias = Callable[[Sequence[StreamIdentity]], Awaitable[Sequence[_Found]]]


# Of each program: the partition key, and its values for a stream; the sort key, which is the id of
# the shard; and the attribute of the last processed record, missing before the first one.
_NUMBER_TABLES: Final = {
    # As its configuration names the stream.
    "bento": ("StreamID", ("{name}", "{arn}"), "ShardID", "SequenceNumber"),
    "harlow": ("namespace", ("{application}-{name}",), "shard_id", "sequence_number"),
}


@click.command("import", cls=CleanCommand)
@click.argument("file", required=False)
@click.option(
    "--from",
    "program",
    type=click.Choice(["kcl", "zio", *_NUMBER_TABLES]),
    help="Whose table in DynamoDB: the Kinesis Client Library's, zio-kinesis's, Bento's (also "
    "Redpanda Connect's) or harlow/kinesis-consumer's.",
)
@click.option("--table", metavar="NAME", help="Its table. By default, the name of its application.")
@click.option("--from-application", metavar="NAME", help="Its application. By default, ours.")
@click.option("--dry-run", is_flag=True, help="Print what would be taken, and change nothing.")
@click.option("--force", is_flag=True, help="Replace rows that the application already has.")
@lease_options
async def import_command(
    file: str | None,
    program: str | None,
    table: str | None,
    from_application: str | None,
    dry_run: bool,
    force: bool,
    properties: Properties,
) -> None:
    """Take over the checkpoints of another application, which is stopped, or of a backup.

    FILE, or - for standard input, has a JSON object per line, as `leases list --json` prints them.
    Only shard_id and sequence_number are needed, the last processed record; of several streams also
    stream_name. With --from, the checkpoints are in a table of another program.

    An ancestor of a shard that has a checkpoint counts as read to its end; other shards without one
    begin at TRIM_HORIZON. What is taken over stays where it is.

    \b
    Examples:
      kinesis-publishers leases list --json --config old.properties > b.jsonl
      kinesis-publishers leases import b.jsonl --config my.properties
      kinesis-publishers leases import --from kcl --table billing --config my.properties --dry-run
    """
    if (file is None) == (program is None) or (file and (table or from_application)):
        raise click.UsageError("Name a FILE (- for standard input), or a program with --from.")
    if file is not None:
        read: _Reader = partial(_read_lines, read_file(file))
    else:
        name = from_application or CheckpointConfig.from_properties(properties).application or ""
        read = partial(_read_table, properties, program, name, table or name)
    await _import(properties, read, is_dry_run=dry_run, replaces=force)


async def _read_lines(content: bytes, _: Sequence[StreamIdentity]) -> list[_Found]:
    found: list[_Found] = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            # Not with orjson: a sequence number may be a number, and has to be exact.
            found.append((f"Line {number}", dict(json.loads(line))))
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"Line {number} is no JSON object: {line!r:.200}") from error
    return found


async def _read_table(
    properties: Properties,
    program: str | None,
    application: str,
    table: str,
    streams: Sequence[StreamIdentity],
) -> list[_Found]:
    properties = with_region(properties)
    aws = AwsConfig.from_properties(properties)
    endpoint = DynamoDbCheckpointConfig.from_properties(properties).endpoint_url
    config = DynamoDbCheckpointConfig(table=table, endpoint_url=endpoint, create_table=False)
    retry = CheckpointConfig.from_properties(properties).retry
    context = CheckpointStoreContext(application=application, retry=retry, clock=SystemClock())
    if program not in _NUMBER_TABLES:
        # Also zio-kinesis's: what counts here is the same.
        initial = InitialPositionConfig.from_properties(properties).positions
        # By any writer.
        context = evolve(context, application="")
        async with KclLeaseTable(context, aws, config, initial) as store:
            store.name_streams(streams)
            rows = shards_of(await store.load())
        return [(str(key), row_fields(row)) for key, row in rows.items()]
    stream_key, names, shard_key, last_record = _NUMBER_TABLES[program]
    arns = {
        name.format(name=one.name, arn=one.arn, application=application): one.arn
        for one in streams
        for name in names
    }
    found: list[_Found] = []
    async with DynamoDbCheckpointStore(context, aws, config) as store:
        async for item in store.storage.read_items("Scan"):
            texts = {name: value.get("S", value.get("N")) for name, value in item.items()}
            name, shard_id = texts.get(stream_key), texts.get(shard_key)
            number = texts.get(last_record)
            position = {"sequence_number": number} if number else {"position": "TRIM_HORIZON"}
            if name in arns:
                fields = {"stream_arn": arns[name], "shard_id": shard_id, **position}
                found.append((f"{name} {shard_id}", fields))
    return found


async def _import(
    properties: Properties, read: _Reader, *, is_dry_run: bool, replaces: bool
) -> None:
    found, now = await listed_shards(properties)
    streams = [*found]
    listed = {shard.key for shards in found.values() for shard in shards}
    named: dict[ShardKey, ShardProgress] = {}
    left_out = []
    for where, fields in await read(streams):
        key, progress = _place_in(where, fields, streams)
        if key in named:
            raise CheckpointError(f"{where} is about {key}, as one before it: remove one of them.")
        if key in listed:
            named[key] = pinned_progress(progress, now)
        else:
            left_out.append(where)
    if left_out:
        say(
            "Warning: left out, for their shards have left the retention or are of other streams: "
            f"{', '.join(left_out):.500}."
        )
    arns = {key.stream_arn for key in named}
    if not arns:
        raise click.ClickException("No row is about a shard of these streams: nothing to import.")
    if missing := [one.name for one in streams if one.arn not in arns]:
        say(f"Warning: left out, for no row is about these streams: {', '.join(missing)}.")
    shards = [one for stream in streams if stream.arn in arns for one in found[stream]]
    taken = named | starting_progress(shards, named, None)
    rows = []
    for key, progress in sorted(taken.items(), key=lambda one: str(one[0])):
        reason = "its descendants were read" if progress.is_ended else "from its beginning"
        rows.append((str(key), describe_progress(progress), "" if key in named else reason))
    print_rich(new_table("Shard", "Position", "Without a row", rows=rows, no_wrap=True))
    if is_dry_run:
        say("Nothing was changed.")
        return
    async with open_store(properties, creates=True) as store:
        stored = await store.load()
        there = sorted(map(str, taken.keys() & stored.keys()))
        if there and not replaces:
            raise click.ClickException(
                f"The application has rows for {len(there)} of these shards, as {there[0]}: import "
                "into a new application, or replace them with --force."
            )
        for batch in _batches(taken, shards, streams, properties):
            await store.save([CheckpointWrite.over(stored, row) for row in batch])
    say(f"Imported: {len(taken)} shards.")


def _batches(
    taken: Mapping[ShardKey, ShardProgress],
    shards: Sequence[Shard],
    streams: Sequence[StreamIdentity],
    properties: Properties,
) -> Iterator[list[Checkpoint]]:
    """Yield the rows to write: parents first, and at last the marks that the streams have begun.

    If this is interrupted, the streams have not begun, and nothing counts as read.
    """
    created_at = {one.arn: one.created_at for one in streams}
    has_leases = LeaseConfig.from_properties(properties).is_enabled
    for generation in generations(shards):
        rows = [first_row(one, created_at[one.stream_arn], taken[one.key]) for one in generation]
        yield rows if has_leases else [evolve(row, lease=None) for row in rows]
    # Ended: no reader is running.
    arns = sorted({key.stream_arn for key in taken})
    yield [Checkpoint.mark(arn, created_at[arn], is_ended=True) for arn in arns]


def _place_in(
    where: str, fields: Mapping[str, Any], streams: Sequence[StreamIdentity]
) -> tuple[ShardKey, ShardProgress]:
    """Return what ``fields`` say; the ARN is empty if the stream is none of ``streams``."""
    given = {name: value for name, value in fields.items() if value is not None}
    if "sequence_number" in given:
        is_inside = "sub_sequence_number" in given
        kind = PositionType.AT_SEQUENCE_NUMBER if is_inside else PositionType.AFTER_SEQUENCE_NUMBER
        given = {"position": kind.value, **given, "sequence_number": str(given["sequence_number"])}
    try:
        progress = progress_of({**given, "is_ended": int(given.get("is_ended", False))})
        arns = [one.arn for one in streams if _is_of(given, one)]
        if len(arns) > 1:
            raise ValueError("there are several streams, and stream_name is missing")
        return ShardKey("".join(arns), given["shard_id"]), progress
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise CheckpointError(f"{where} cannot be used: {reason}: {fields!r:.500}") from error


def _is_of(given: Mapping[str, Any], stream: StreamIdentity) -> bool:
    own = {
        "stream_name": stream.name,
        "stream_arn": stream.arn,
        # One that was created again under the same name has other records.
        "stream_created_at": instant_text(stream.created_at),
    }
    return all(given.get(name, value) == value for name, value in own.items())
