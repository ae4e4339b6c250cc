"""``kinesis-publishers leases``: the stored leases and checkpoints of an application."""

from __future__ import annotations

import click

from kinesis_publishers.cli.leases.changing import release, reset
from kinesis_publishers.cli.leases.importing import import_command
from kinesis_publishers.cli.leases.rows import list_command, watch_command
from kinesis_publishers.cli.shared.commands import CleanGroup


@click.group(cls=CleanGroup)
def leases() -> None:
    """Show and change which worker reads which shard, and how far.

    They are the rows of kinesis.checkpoint.application in kinesis.checkpoint.store, for the streams
    that the properties name; those of an application with one reader have no owner.
    """


for _command in (list_command, watch_command, release, reset, import_command):
    leases.add_command(_command)
