"""The command ``tail``: its options, and the reader that they configure."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import click

from kinesis_publishers.assembly import publisher_factory_class
from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.connection import (
    Connection,
    by_full_key,
    connection_options,
    only_stream,
    stream_argument,
)
from kinesis_publishers.cli.shared.console import output_bytes, output_console, say
from kinesis_publishers.cli.shared.event_loop import OutputPipe
from kinesis_publishers.cli.shared.formats import DATA_ENCODINGS, json_line, plain_line
from kinesis_publishers.cli.tail.screen import Screen
from kinesis_publishers.cli.tail.session import LiveTable, RecordLines, TailSession
from kinesis_publishers.clock import ServiceClock, SystemClock
from kinesis_publishers.config import (
    AssignmentConfig,
    AwsConfig,
    CheckpointConfig,
    EndingPositionConfig,
    InitialPositionConfig,
    MetricsConfig,
    Option,
    PollingConfig,
    Properties,
    RegistrationConfig,
    RegistrationStrategy,
    Scalar,
    SourceConfig,
    WatermarkConfig,
)
from kinesis_publishers.config.sections.checkpoints import OF_APPLICATION
from kinesis_publishers.config.sections.reading import ARRIVAL
from kinesis_publishers.config.sections.source import built_in_publisher
from kinesis_publishers.model import PositionType, Record
from kinesis_publishers.model.sources import POLLING, PUBLISHERS, consumer_name_of
from kinesis_publishers.readers.bounds import bounds_of
from kinesis_publishers.readers.fetcher import KinesisDataFetcher

# One of the five calls a second that a shard answers: the others are the application's.
_INTERVAL_MILLIS: Final = 1000
_LOCAL_SINKS: Final = frozenset({"log", "summary"})
_APPLICATION: Final = CheckpointConfig.application.full_key
_CHECKPOINTS: Final = [option.full_key for option in OF_APPLICATION]
_ASSIGNER: Final = WatermarkConfig.assigner.full_key
_POSITION: Final = InitialPositionConfig.position.full_key
_BEGIN: Final = {_POSITION, InitialPositionConfig.timestamp.text.full_key}
_END: Final = EndingPositionConfig.position.full_key
_SHARDS: Final = InitialPositionConfig.shards.full_key
_PUBLISHER: Final = SourceConfig.record_publisher.full_key
_NAME: Final = RegistrationConfig.consumer_name.full_key
_STRATEGY: Final = RegistrationConfig.strategy.full_key
_DEREGISTER: Final = RegistrationConfig.deregister.full_key
_ARNS: Final = RegistrationConfig.consumer_arn.of("").full_key
_ADVICE: Final = f"-P {_PUBLISHER}=EFO -P {_NAME}=NAME"


@click.command(cls=CleanCommand)
@click.option(
    "--start",
    metavar="TIME",
    help="Where to begin: LATEST, TRIM_HORIZON, -10m for ten minutes ago, ISO-8601 or epoch "
    "seconds. LATEST, or with --end TRIM_HORIZON, unless the properties say otherwise.",
)
@click.option(
    "--end",
    metavar="TIME",
    help="End before a time, in the same notation. LATEST: after what is in the stream now.",
)
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="SHARD",
    help="Read only this shard: its id or number, or STREAM:ID if there are several streams. "
    "Can be repeated.",
)
@click.option(
    "-n", "--max-records", type=click.IntRange(min=1), metavar="N", help="End after N records."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per record.")
@click.option(
    "--data",
    "encoding",
    type=click.Choice(DATA_ENCODINGS),
    help="With --json: the encoding of payloads.  [default: base64]",
)
@click.option("--lines", is_flag=True, help="Print a line per record, on a terminal too.")
@click.option(
    "--newest",
    type=click.IntRange(0, 100),
    default=0,
    metavar="N",
    help="With the table: show the N newest records below it.",
)
@stream_argument
@connection_options
async def tail(
    start: str | None,
    end: str | None,
    shards: tuple[str, ...],
    max_records: int | None,
    as_json: bool,
    encoding: str | None,
    lines: bool,
    newest: int,
    connection: Connection,
) -> None:
    """Read streams and show what arrives, until Ctrl-C.

    On a terminal a live table shows how fast each shard is read, how far it is behind the tip, and
    which is hot; s sorts it, r reverses it, p pauses it, q quits. In a pipe or a file each record
    is a line.

    With the properties of an application, tail moves no checkpoint and takes over no stream
    consumer. It polls, unless you give it a consumer of its own.

    \b
    Examples:
      kinesis-publishers tail orders --region eu-west-1
      kinesis-publishers tail --config my.properties --newest 5
      kinesis-publishers tail orders --start -10m --end LATEST --json
      kinesis-publishers tail orders --json --data json | jq .data
    """
    if sum((as_json, lines, bool(newest))) > 1:
        raise click.UsageError("Use only one of --json, --lines and --newest (of the table).")
    if encoding is not None and not as_json:
        raise click.UsageError("--data chooses how JSON shows payloads: add --json.")
    clock = ServiceClock(SystemClock())
    properties, left_out = observer_properties(connection, _positions(start, end))
    properties, _ = bounds_of(properties, clock)
    if shards:
        properties = _with_shards(properties, shards)
    for sentence in left_out:
        say(sentence)
    is_table = not (as_json or lines) and sys.stdout.isatty()

    def line_of(record: Record) -> bytes:
        if as_json:
            return json_line(record, encoding or "base64")
        return f"{plain_line(record)}\n".encode()

    if is_table:
        begin = InitialPositionConfig.from_properties(properties).positions.default
        screen = Screen(begin=begin, place=_place(properties))
        kept: deque[str] = deque(maxlen=newest)
        session: TailSession = LiveTable(
            output_console(), screen, kept, clock=clock, max_records=max_records
        )
    else:
        pipe = OutputPipe(output_bytes())
        session = RecordLines(pipe, line_of, clock=clock, max_records=max_records)
    try:
        async with KinesisDataFetcher.from_properties(
            properties, session, clock=clock
        ) as session.fetcher:
            await session.run()
    finally:
        # The summary is for a person, not for a log of the lines.
        is_wanted = is_table or (sys.stderr is not None and sys.stderr.isatty())
        if is_wanted and (summary := session.summary()):
            say(summary)


def _with_shards(properties: Properties, shards: tuple[str, ...]) -> Properties:
    named = []
    for shard in shards:
        stream, _, name = shard.rpartition(":")
        stream = stream or only_stream(properties).name
        # As the table shows it.
        named.append(f"{stream}:{f'shardId-{int(name):012}' if name.isdecimal() else name}")
    return properties.with_values({AssignmentConfig.written_shards: ",".join(named)})


def _place(properties: Properties) -> str | None:
    endpoint = AwsConfig.from_properties(properties).endpoint_url
    host = urlsplit(endpoint).hostname if endpoint else None
    return "local server" if host in ("127.0.0.1", "::1", "localhost") else host


def _positions(start: str | None, end: str | None) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for section, text in ((InitialPositionConfig, start), (EndingPositionConfig, end)):
        if text is not None:
            # Also positions of single shards, which would take precedence.
            given |= dict.fromkeys(option.full_key for option in section.options())
            given[section.position.full_key] = text
    return given


def observer_properties(
    connection: Connection, position: Mapping[str, str | None]
) -> tuple[Properties, list[str]]:
    """Return the properties of a tail, and a sentence about each one that it leaves out.

    With the application's own properties, a tail would move its checkpoints, take over its
    subscriptions, remove its consumer, publish its metrics and use up its calls to the shards.
    The command line takes precedence, except for checkpoints.
    """
    file, line = by_full_key(connection.file), connection.line
    given = file | line
    reasons: list[str] = []
    more: dict[str, str | None] = dict.fromkeys(one.full_key for one in WatermarkConfig.options())
    if _ASSIGNER in given:
        # The application's own class may not be installed here. Its options remain, unread.
        more[_ASSIGNER] = ARRIVAL
    more |= position
    if _APPLICATION in given:
        start = PositionType.TRIM_HORIZON if _END in position else PositionType.LATEST
        begin = {} if _BEGIN & line.keys() else {_POSITION: start.value}
        more |= {**dict.fromkeys(_CHECKPOINTS), _SHARDS: line.get(_SHARDS), **begin, **position}
        reasons.append(
            f"{_APPLICATION} is left out: tail neither reads nor writes checkpoints, and begins at "
            f"{start.value}, unless --start or -P say where."
        )
    known = PUBLISHERS.get(given.get(_PUBLISHER, POLLING.name).strip().upper())
    # EFO cannot be parsed yet: the consumer may be missing, or be one of another stream.
    if (known or publisher_factory_class(connection.properties(more))).subscribes:
        more |= _fan_out(file, line, reasons)
    properties = connection.properties(more)
    # Two displays would overwrite each other.
    changes: dict[Option[Any], Scalar | None] = {MetricsConfig.progress: None}
    sinks, interval = MetricsConfig.sinks, PollingConfig.interval_seconds
    names = properties.get(sinks)
    if sinks.full_key not in line and not _LOCAL_SINKS.issuperset(names):
        changes[sinks] = None
        reasons.append(f"{sinks.full_key} is left out: those metrics are the application's.")
    # A custom publisher stays as it is: how it reads is not known.
    publisher = built_in_publisher(properties)
    if publisher and publisher.polls and interval.full_key not in line:
        changes[interval] = max(properties.get(interval), _INTERVAL_MILLIS)
    return properties.with_values(changes), reasons


def _fan_out(
    file: Mapping[str, str], line: Mapping[str, str], reasons: list[str]
) -> dict[str, str | None]:
    """Return the properties for the tail's own stream consumer, or for polling; add the reason."""
    theirs, ours = _consumers(file), _consumers(line)
    if ours and not ours & theirs:
        # Its own must not stay registered, and billed, because the application's does.
        names = [key for key in file if key in (_NAME, _DEREGISTER) or key.startswith(_ARNS)]
        if left := [key for key in names if key not in line]:
            verb = "is" if len(left) == 1 else "are"
            reasons.append(
                f"{', '.join(left)} {verb} left out: tail reads with its own stream consumer."
            )
        strategy = None if _NAME in line else RegistrationStrategy.NONE.value
        return {**dict.fromkeys(left), _STRATEGY: line.get(_STRATEGY, strategy)}
    if _PUBLISHER in line:
        raise click.UsageError(
            "By enhanced fan-out tail needs its own stream consumer: it would take over "
            f"the subscriptions of the one in the file. Use {_ADVICE} with another name than the "
            f"application's, or the ARNs of other consumers (-P {_ARNS}STREAM=ARN)."
        )
    reasons.append(
        f"{_PUBLISHER}=EFO is left out: tail polls, because it would take over the "
        f"subscriptions of the application's consumer. To give it its own, use {_ADVICE}."
    )
    return {_PUBLISHER: POLLING.name}


def _consumers(properties: Mapping[str, str]) -> set[str]:
    """Return the names of the stream consumers that properties have, as names or in ARNs."""
    return {
        consumer_name_of(value) or value.strip()
        for key, value in properties.items()
        if key == _NAME or key.startswith(_ARNS)
    }
