"""``kinesis-publishers leases``: the stored leases and checkpoints of an application."""

from __future__ import annotations

from kinesis_publishers.cli.leases.changing import release, reset
from kinesis_publishers.cli.leases.importing import import_command
from kinesis_publishers.cli.leases.rows import list_command, watch_command
from kinesis_publishers.cli.shared.commands import CleanGroup

leases = CleanGroup(
    commands=[list_command, watch_command, release, reset, import_command],
    help="""Show and change which worker reads which shard, and how far.

    They are the rows of kinesis.checkpoint.application in kinesis.checkpoint.store, for the streams
    that the properties name; those of an application with one reader have no owner.
    """,
)
