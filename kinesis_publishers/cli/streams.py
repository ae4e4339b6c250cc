"""The commands ``list``, ``describe``, ``create`` and ``shards``, which deal with whole streams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import click
from attrs import asdict
from rich.text import Text
from rich.tree import Tree

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.shared.commands import STREAM_NAME, CleanCommand
from kinesis_publishers.cli.shared.connection import (
    Connection,
    connection_options,
    listed_shards,
    region_options,
    stream_argument,
)
from kinesis_publishers.cli.shared.console import (
    new_table,
    print_json_lines,
    print_rich,
    printable,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import (
    counted,
    format_bytes,
    format_share,
    hash_key_share,
    iso_utc,
)
from kinesis_publishers.config import DiscoveryConfig, Properties, StreamsConfig
from kinesis_publishers.engine.lineage import generations
from kinesis_publishers.model import Shard

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

    async def list_all() -> list[dict[str, Any]]:
        async with open_control(properties) as control:
            return [
                asdict(one) | {"created_at": one.created_at and iso_utc(one.created_at)}
                for one in await control.control_plane.list_streams()
            ]

    found = run_until_signal(list_all())
    if as_json:
        print_json_lines(found)
    elif found:
        names = ("name", "status", "mode", "created_at")
        rows = ([str(one[name]) for name in names] for one in found)
        print_rich(new_table("Stream", "Status", "Mode", "Created", rows=rows, no_wrap=True))
    else:
        say("There are no streams here: kinesis-publishers create NAME makes one.")


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
    found = run_until_signal(_describe(properties))
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
                    "retention_hours": summary.retention_seconds / 3600,
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
async def create(name: str, shards: int | None, connection: Connection) -> None:
    """Create a stream, and wait until it is ACTIVE.

    \b
    Examples:
      kinesis-publishers create orders --shards 4 --region eu-west-1
      kinesis-publishers create orders --local
    """
    patience = DiscoveryConfig.describe_retry.max_retries.full_key
    # AWS takes half a minute to create a stream.
    retries = connection.line.get(patience, "100")
    properties = connection.properties({StreamsConfig.names.full_key: name, patience: retries})
    async with open_control(properties) as control:
        await control.control_plane.create_stream(name, shards)
        # The shards of a stream that is being created cannot be listed.
        await control.discovery.describe(name)
    say(f"{name} is ACTIVE.")


@click.command(cls=CleanCommand)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per shard.")
@stream_argument
@connection_options
def shards(as_json: bool, connection: Connection) -> None:
    """Show the shards of streams: which are open, their share of the hash keys, their parents.

    A closed shard is shown until its last record expires.

    \b
    Examples:
      kinesis-publishers shards orders --region eu-west-1
      kinesis-publishers shards --config my.properties --json | jq 'select(.is_open)'
    """
    properties = connection.properties_without_reading()
    found, _ = run_until_signal(listed_shards(properties))
    for stream, listed in found.items():
        if as_json:
            ordered = sorted(listed, key=lambda shard: shard.shard_id)
            print_json_lines(shard_fields(shard) for shard in ordered)
        else:
            # In whole lines: a width would cut deep branches.
            print_rich(lineage_tree(stream.name, listed), is_cut=False)


def lineage_tree(stream_name: str, shards: Sequence[Shard]) -> Tree:
    """Return the lineage of all ``shards`` that the stream lists.

    A shard stands below its parent. A merged shard stands below the first one and names the other.
    """
    closed = sum(shard.is_closed for shard in shards)
    name = printable(stream_name)
    tree = Tree(Text(f"{name}: {len(shards) - closed} open, {closed} closed"))
    branches: dict[str, Tree] = {}
    ordered = sorted(shards, key=lambda shard: shard.shard_id)
    for shard in chain.from_iterable(generations(ordered)):
        parents = [key.shard_id for key in shard.parent_keys]
        below = next((one for one in parents if one in branches), None)
        others = [
            one if one in branches else f"{one}, no longer listed"
            for one in parents
            if one != below
        ]
        label = _label(shard)
        if others:
            label.append(f"  {'and' if below else 'from'} {printable(' and '.join(others))}", "dim")
        branch = tree if below is None else branches[below]
        branches[shard.shard_id] = branch.add(label)
    return tree


def shard_fields(shard: Shard) -> dict[str, Any]:
    return {
        "stream_name": shard.stream_name,
        **asdict(shard),
        "is_open": not shard.is_closed,
        "hash_key_share": hash_key_share(shard.starting_hash_key, shard.ending_hash_key),
    }


def _label(shard: Shard) -> Text:
    share = format_share(hash_key_share(shard.starting_hash_key, shard.ending_hash_key))
    state, style = ("closed", "dim") if shard.is_closed else ("open", "green")
    return Text.assemble(printable(shard.shard_id), "  ", (state, style), f"  {share}")
