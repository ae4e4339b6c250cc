"""The commands ``consumers list``, ``register``, ``wait`` and ``deregister``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from rich import box
from rich.table import Table

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.consumers.actions import (
    find_consumers,
    register_consumer,
    remove_consumers,
    wait_until_active,
)
from kinesis_publishers.cli.shared.commands import Checked, CleanGroup, DurationType
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import print_json_lines, print_rich, say
from kinesis_publishers.cli.shared.formats import iso_utc
from kinesis_publishers.cli.shared.interruptions import run_until_signal
from kinesis_publishers.config import RegistrationConfig, StreamsConfig
from kinesis_publishers.registration.consumers import list_consumers, stream_arn_of

if TYPE_CHECKING:
    from datetime import timedelta

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import StreamConsumer

__all__ = ["consumers"]

_NAME: Final = Checked(
    "name",
    lambda text: RegistrationConfig.consumer_name.parse(text) or "",
    RegistrationConfig.consumer_name.parser.accepts,
)
_NAME_OR_ARN: Final = Checked(
    "name or arn", lambda text: _name_or_arn(text), "the name or the ARN of a stream consumer"
)


def _name_or_arn(text: str) -> str:
    name, arn = RegistrationConfig.consumer_name, RegistrationConfig.consumer_arn.member
    option = arn if ":" in text else name
    return option.parse(text) or ""


@click.group(cls=CleanGroup)
def consumers() -> None:
    """Manage the stream consumers of enhanced fan-out by hand.

    With kinesis.stream.efo.registration=NONE an application registers nothing: it reads with the
    ARNs that its properties have. These commands register consumers and print those properties.
    """


@consumers.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per consumer.")
@connection_options
def list_command(as_json: bool, connection: Connection) -> None:
    """List the consumers of streams, with their ARNs.

    \b
    Example:
      kinesis-publishers consumers list --stream orders --region eu-west-1
    """
    properties = connection.properties_without_reading()
    found = run_until_signal(lambda: _list(properties))
    if as_json:
        print_json_lines(
            {
                "stream_name": stream_name,
                "consumer_name": one.name,
                "consumer_arn": one.arn,
                "status": one.status,
                "created_at": iso_utc(one.created_at),
            }
            for stream_name, one in found
        )
    elif found:
        print_rich(_table(found))
    else:
        say("There are no stream consumers.")


@consumers.command()
@click.argument("name", type=_NAME)
@click.option("--wait", is_flag=True, help="Wait until it is ACTIVE, as the command wait does.")
@connection_options
def register(name: str, wait: bool, connection: Connection) -> None:
    """Register the consumer NAME and print the property to use; one that is there is used.

    It takes some seconds before a new consumer can read: see wait.

    \b
    Example:
      kinesis-publishers consumers register reports --stream orders >> my.properties
    """
    properties = connection.properties_without_reading()
    run_until_signal(lambda: _register(properties, name, is_waiting=wait))


@consumers.command()
@click.argument("name", type=_NAME)
@click.option(
    "--timeout",
    type=DurationType(),
    metavar="DURATION",
    help="How long to wait, as 90s or 5m; kinesis.stream.registerstreamconsumer.timeout, which is "
    "60 s, unless given.",
)
@connection_options
def wait(name: str, timeout: timedelta | None, connection: Connection) -> None:
    """Wait until the consumer NAME is ACTIVE, and print the property to use.

    \b
    Example:
      kinesis-publishers consumers wait reports --stream orders --timeout 2m
    """
    properties = connection.properties_without_reading()
    run_until_signal(lambda: _wait(properties, name, patience=timeout))


@consumers.command()
@click.argument("consumer", metavar="NAME_OR_ARN", type=_NAME_OR_ARN)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_options
def deregister(consumer: str, yes: bool, connection: Connection) -> None:
    """Remove a consumer; its readers stop. One that does not exist is no error.

    \b
    Example:
      kinesis-publishers consumers deregister reports --stream orders --yes
    """
    # The ARN of a consumer has that of its stream.
    is_arn = ":" in consumer
    streams = {StreamsConfig.names.full_key: stream_arn_of(consumer)} if is_arn else {}
    properties = connection.properties_without_reading(streams)
    found = run_until_signal(lambda: find_consumers(properties, consumer))
    if not found:
        say(f"There is no stream consumer {consumer}: nothing to do.")
        return
    if not yes:
        _confirm(found)
    if not run_until_signal(lambda: remove_consumers(properties, found)):
        raise click.ClickException("A stream consumer was not removed.")


def _confirm(found: list[tuple[str, StreamConsumer]]) -> None:
    """Ask on the terminal; Ctrl-C is left to the command."""
    say("\n".join(f"{one.arn} ({one.status})" for _, one in found))
    click.echo("Its readers stop. Remove it? [y/N]: ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise click.ClickException("Not confirmed: nothing was removed. In scripts, use --yes.")


async def _list(properties: Properties) -> list[tuple[str, StreamConsumer]]:
    async with open_control(properties) as control:
        return [
            (stream.name, consumer)
            for stream in await control.streams()
            for consumer in await list_consumers(stream.arn, control.registration, control)
        ]


async def _register(properties: Properties, name: str, *, is_waiting: bool) -> None:
    async with open_control(properties) as control:
        for stream in await control.streams():
            consumer, is_new = await register_consumer(control, stream.arn, name)
            say(f"{name} is {'registered' if is_new else 'there already'} on {stream.name}.")
            if is_waiting:
                seconds = control.registration.register_timeout_seconds
                consumer = await wait_until_active(
                    control, stream.arn, name, timeout_seconds=seconds
                )
            _print_property(stream.name, consumer)


async def _wait(properties: Properties, name: str, *, patience: timedelta | None) -> None:
    async with open_control(properties) as control:
        seconds = control.registration.register_timeout_seconds
        if patience is not None:
            seconds = patience.total_seconds()
        for stream in await control.streams():
            consumer = await wait_until_active(control, stream.arn, name, timeout_seconds=seconds)
            _print_property(stream.name, consumer)


def _print_property(stream_name: str, consumer: StreamConsumer) -> None:
    say(f"The stream consumer is {consumer.status}. The property for registration NONE:")
    click.echo(f"{RegistrationConfig.consumer_arn.of(stream_name).full_key}={consumer.arn}")


def _table(found: list[tuple[str, StreamConsumer]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("Stream", "Name", "Status", "Created"):
        table.add_column(heading, no_wrap=True)
    # Whole on any terminal, so that it can be copied.
    table.add_column("ARN", overflow="fold")
    for stream_name, one in found:
        table.add_row(stream_name, one.name, one.status, iso_utc(one.created_at)[:19], one.arn)
    return table
