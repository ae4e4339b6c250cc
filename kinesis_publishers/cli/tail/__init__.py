"""The command ``tail``: its options, and the reader that they configure."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.connection import (
    Connection,
    connection_options,
    only_stream,
    stream_argument,
)
from kinesis_publishers.cli.shared.console import output_bytes, output_console, say
from kinesis_publishers.cli.shared.event_loop import OutputPipe, run_until_signal
from kinesis_publishers.cli.shared.formats import DataEncoding, json_line, plain_line
from kinesis_publishers.cli.tail.observing import observer_properties
from kinesis_publishers.cli.tail.screen import Screen
from kinesis_publishers.cli.tail.session import LiveTable, RecordLines, RecordView, TailSession
from kinesis_publishers.clock import ServiceClock, SystemClock
from kinesis_publishers.config import (
    AssignmentConfig,
    AwsConfig,
    EndingPositionConfig,
    InitialPositionConfig,
    Properties,
)
from kinesis_publishers.model import Record
from kinesis_publishers.readers.bounds import bounds_of
from kinesis_publishers.readers.fetcher import KinesisDataFetcher


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
    type=click.Choice([one.value for one in DataEncoding]),
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
def tail(
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
    used = DataEncoding(encoding or "base64") if as_json else None

    async def read() -> None:
        if is_table:
            begin = InitialPositionConfig.from_properties(properties).start
            screen = Screen(begin=begin, place=_place(properties))
            view: RecordView = LiveTable(output_console(), clock, screen, newest=newest)
        else:
            view = RecordLines(OutputPipe(output_bytes()), lambda record: _line(record, used))
        session = TailSession(view, clock, max_records=max_records)
        try:
            async with KinesisDataFetcher.from_properties(
                properties, session, clock=clock
            ) as fetcher:
                session.fetcher = fetcher
                await view.run(fetcher)
        finally:
            # The summary is for a person, not for a log of the lines.
            is_wanted = is_table or (sys.stderr is not None and sys.stderr.isatty())
            if is_wanted and (summary := session.summary()):
                say(summary)

    run_until_signal(read())


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


def _line(record: Record, encoding: DataEncoding | None) -> bytes:
    return json_line(record, encoding) if encoding else f"{plain_line(record)}\n".encode()


def _positions(start: str | None, end: str | None) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for section, text in ((InitialPositionConfig, start), (EndingPositionConfig, end)):
        if text is not None:
            # Also positions of single shards, which would take precedence.
            given |= dict.fromkeys(option.full_key for option in section.options())
            given[section.position.full_key] = text
    return given
