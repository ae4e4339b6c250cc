"""The command ``shards``: the lineage of a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text
from rich.tree import Tree

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.shared.commands import CleanCommand
from kinesis_publishers.cli.shared.connection import (
    Connection,
    connection_options,
    stream_argument,
)
from kinesis_publishers.cli.shared.console import print_json_lines, print_tree
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import format_share, hash_key_share, printable
from kinesis_publishers.config import Properties
from kinesis_publishers.model import Shard


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


def lineage_tree(stream_name: str, shards: Sequence[Shard]) -> Tree:
    """Return the lineage of all ``shards`` that the stream lists.

    A shard stands below its parent. A merged shard stands below the first one and names the other.
    """
    by_id = {shard.shard_id: shard for shard in shards}
    children: defaultdict[str | None, list[Shard]] = defaultdict(list)
    for shard in sorted(shards, key=lambda shard: shard.shard_id):
        children[_shown_below(shard, by_id)].append(shard)
    closed = sum(shard.is_closed for shard in shards)
    name = printable(stream_name)
    tree = Tree(Text(f"{name}: {len(shards) - closed} open, {closed} closed"))
    # Not by recursion: a stream that is resharded daily has hundreds of generations.
    pending: list[tuple[Tree, str | None]] = [(tree, None)]
    while pending:
        branch, shard_id = pending.pop()
        pending.extend(
            (branch.add(_label(shard, by_id)), shard.shard_id) for shard in children[shard_id]
        )
    return tree


def shard_fields(shard: Shard) -> dict[str, Any]:
    return {
        "stream_name": shard.stream_name,
        "stream_arn": shard.stream_arn,
        "shard_id": shard.shard_id,
        "is_open": not shard.is_closed,
        "parent_shard_id": shard.parent_shard_id,
        "adjacent_parent_shard_id": shard.adjacent_parent_shard_id,
        "hash_key_share": hash_key_share(shard.starting_hash_key, shard.ending_hash_key),
        "starting_hash_key": shard.starting_hash_key,
        "ending_hash_key": shard.ending_hash_key,
        "starting_sequence_number": shard.starting_sequence_number,
        "ending_sequence_number": shard.ending_sequence_number,
    }


def _shown_below(shard: Shard, listed: Mapping[str, Shard]) -> str | None:
    return next((key.shard_id for key in shard.parent_keys if key.shard_id in listed), None)


def _label(shard: Shard, listed: Mapping[str, Shard]) -> Text:
    share = format_share(hash_key_share(shard.starting_hash_key, shard.ending_hash_key))
    state, style = ("closed", "dim") if shard.is_closed else ("open", "green")
    label = Text.assemble(printable(shard.shard_id), "  ", (state, style), f"  {share}")
    shown = _shown_below(shard, listed)
    others = [key.shard_id for key in shard.parent_keys if key.shard_id != shown]
    if others:
        notes = [one if one in listed else f"{one}, no longer listed" for one in others]
        label.append(f"  {'and' if shown else 'from'} {printable(' and '.join(notes))}", "dim")
    return label
