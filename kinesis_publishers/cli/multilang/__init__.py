"""The command ``multilang``: runs processors that were written for the KCL's MultiLangDaemon."""

from __future__ import annotations

import asyncio

import click

from kinesis_publishers.cli.multilang.daemon import run_daemon
from kinesis_publishers.cli.shared.commands import CleanCommand, read_file
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.cli.shared.kcl_properties import daemon_config
from kinesis_publishers.config.properties import pairs_in


@click.command(cls=CleanCommand)
@click.argument("config", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Check FILE, and start nothing.")
def multilang(config: str, check: bool) -> None:
    """Run the processors of a MultiLangDaemon's .properties FILE (KCL-Python, KCL-Node), without
    Java.

    Each shard gets a process of executableName, which speaks the daemon's protocol. The leases are
    in the lease table of the KCL: workers of the KCL may run at the same time. SIGTERM and Ctrl-C
    let processors checkpoint. Exits with 1 if a processor fails.

    \b
    Examples:
      kinesis-publishers multilang my.properties --check
      kinesis-publishers multilang my.properties
    """
    daemon = daemon_config(pairs_in(read_file(config), name=config))
    for note in daemon.unused:
        say(f"Warning: {note}.")
    if check:
        say("No errors.")
    else:
        asyncio.run(run_daemon(daemon))
