"""The commands ``list``, ``describe`` and ``create``, which deal with whole streams."""

from __future__ import annotations

from typing import Any

import click
from attrs import asdict
from rich.text import Text

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.shared.commands import STREAM_NAME, CleanCommand
from kinesis_publishers.cli.shared.connection import (
    Connection,
    by_full_key,
    connection_options,
    region_options,
    stream_argument,
)
from kinesis_publishers.cli.shared.console import new_table, print_json_lines, print_rich, say
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import counted, format_bytes, iso_utc, printable
from kinesis_publishers.config import DiscoveryConfig, Properties, StreamsConfig

_SECONDS_PER_HOUR = 3600
_json_option = click.option("--json", "as_json", is_flag=True, help="Print a JSON object each.")


@click.command("list", cls=CleanCommand)
@_json_option
@region_options
def list_streams(as_json: bool, connection: Connection) -> None:
    """List the streams of a region.

    \b
    Examples:
      kinesis-publishers list --region eu-west-1
      kinesis-publishers list --local
    """
    properties = connection.properties(complete=False)
    found = run_until_signal(lambda: _list(properties))
    if as_json:
        print_json_lines(found)
    elif found:
        names = ("name", "status", "mode", "created_at")
        rows = ([str(one[name]) for name in names] for one in found)
        print_rich(new_table("Stream", "Status", "Mode", "Created", rows=rows, no_wrap=True))
    else:
        say("There are no streams here: kinesis-publishers create NAME makes one.")


async def _list(properties: Properties) -> list[dict[str, Any]]:
    async with open_control(properties) as control:
        return [
            asdict(one) | {"created_at": one.created_at and iso_utc(one.created_at)}
            for one in await control.control_plane.list_streams()
        ]


@click.command(cls=CleanCommand)
@_json_option
@stream_argument
@connection_options
def describe(as_json: bool, connection: Connection) -> None:
    """Show what streams are: status, mode, retention, shards and stream consumers.

    \b
    Example:
      kinesis-publishers describe orders --region eu-west-1
    """
    properties = connection.properties_without_reading()
    found = run_until_signal(lambda: _describe(properties))
    if as_json:
        print_json_lines(found)
        return
    for one in found:
        consumers = ", ".join(f"{name} ({is_now})" for name, is_now in one["consumers"].items())
        rows = {
            "ARN": one["arn"],
            "status": f"{one['status']}, created {one['created_at']}",
            "shards": f"{one['open_shards']} open, {one['closed_shards']} closed",
            "retention": counted(round(one["retention_hours"]), "hour"),
            "largest record": format_bytes(one["max_record_bytes"]),
            "consumers": consumers or "none",
        }
        width = max(map(len, rows))
        lines = (f"  {name:<{width}}  {text}" for name, text in rows.items())
        print_rich(Text(printable(one["name"]), "bold"))
        print_rich(Text("\n".join(map(printable, lines))))


async def _describe(properties: Properties) -> list[dict[str, Any]]:
    async with open_control(properties) as control:
        found = []
        for selector in control.selectors:
            summary = await control.discovery.describe(selector)
            arn = summary.identity.arn
            shards = await control.discovery.list_shards(arn)
            closed = sum(shard.is_closed for shard in shards)
            consumers = await control.control_plane.list_stream_consumers(arn)
            found.append(
                {
                    "name": summary.identity.name,
                    "arn": arn,
                    "status": summary.status,
                    "created_at": iso_utc(summary.identity.created_at),
                    "open_shards": len(shards) - closed,
                    "closed_shards": closed,
                    "retention_hours": summary.retention_seconds / _SECONDS_PER_HOUR,
                    "max_record_bytes": summary.max_record_bytes,
                    "consumers": {one.name: one.status for one in consumers},
                }
            )
        return found


@click.command(cls=CleanCommand)
@click.argument("name", type=STREAM_NAME)
@click.option(
    "--shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of shards, which take 1 MB/s each. Without it, the stream is on demand.",
)
@region_options
def create(name: str, shards: int | None, connection: Connection) -> None:
    """Create a stream, and wait until it is ACTIVE.

    \b
    Examples:
      kinesis-publishers create orders --shards 4 --region eu-west-1
      kinesis-publishers create orders --local
    """
    patience = DiscoveryConfig.describe_retry.max_retries.full_key
    # AWS takes half a minute to create a stream.
    retries = by_full_key(connection.pairs).get(patience, "100")
    properties = connection.properties({StreamsConfig.names.full_key: name, patience: retries})
    run_until_signal(lambda: _create(properties, name, shards))
    say(f"{name} is ACTIVE.")


async def _create(properties: Properties, name: str, shards: int | None) -> None:
    async with open_control(properties) as control:
        await control.control_plane.create_stream(name, shards)
        # The shards of a stream that is being created cannot be listed.
        await control.discovery.describe(name)
