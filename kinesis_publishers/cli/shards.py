"""The command ``shards``: the lineage of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.commands import CleanCommand
from kinesis_publishers.cli.connection import Connection, connection_options
from kinesis_publishers.cli.console import print_json_lines, print_tree
from kinesis_publishers.cli.interruptions import run_until_signal
from kinesis_publishers.cli.lineage_tree import lineage_tree, shard_fields

if TYPE_CHECKING:
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Shard

__all__ = ["shards"]


@click.command(cls=CleanCommand)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per shard.")
@connection_options
def shards(as_json: bool, connection: Connection) -> None:
    """Show the shards of streams: which are open, their share of the hash keys, their parents.

    A closed shard is shown as long as its records can be read.

    \b
    Examples:
      kinesis-publishers shards --stream orders --region eu-west-1
      kinesis-publishers shards --config my.properties --json | jq 'select(.is_open)'
    """
    properties = connection.properties_without_reading()
    found = run_until_signal(lambda: _list_shards(properties))
    for stream_name, listed in found.items():
        if as_json:
            ordered = sorted(listed, key=lambda shard: shard.shard_id)
            print_json_lines(shard_fields(shard) for shard in ordered)
        else:
            print_tree(lineage_tree(stream_name, listed))


async def _list_shards(properties: Properties) -> dict[str, tuple[Shard, ...]]:
    async with open_control(properties) as control:
        return {
            stream.name: await control.discovery.list_shards(stream.arn)
            for stream in await control.streams()
        }
