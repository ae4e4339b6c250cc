"""The commands of ``consumers``; each may be repeated: what is done already is no error."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

import click

from kinesis_publishers.assembly import ControlServices, open_control
from kinesis_publishers.cli.leases.rows import (
    lease_options,
    load_rows,
    open_store,
    settled_rows,
    shards_of,
)
from kinesis_publishers.cli.shared.commands import CleanGroup, checked, confirm, yes_option
from kinesis_publishers.cli.shared.connection import Connection, connection_options
from kinesis_publishers.cli.shared.console import (
    new_table,
    print_json_lines,
    print_rich,
    printable,
    say,
)
from kinesis_publishers.cli.shared.event_loop import run_until_signal
from kinesis_publishers.cli.shared.formats import iso_utc
from kinesis_publishers.config import (
    DeregistrationPolicy,
    Properties,
    RegistrationConfig,
    StreamsConfig,
)
from kinesis_publishers.leases.rules import lease_of
from kinesis_publishers.model import StreamConsumer, StreamIdentity
from kinesis_publishers.model.sources import stream_arn_of
from kinesis_publishers.registration import ConsumerLease, deregister_consumer
from kinesis_publishers.registration.consumers import find_consumer, list_consumers
from kinesis_publishers.registration.registering import ConsumerRegistration

# The consumers, each with the name of its stream.
_Found: TypeAlias = list[tuple[str, StreamConsumer]]
_TIMEOUT: Final = RegistrationConfig.register_timeout_seconds
_CONSUMER: Final = RegistrationConfig.consumer_name
_ARN: Final = RegistrationConfig.consumer_arn.member
_NAME: Final = checked(_CONSUMER.parse, f"got {{}}, expected {_CONSUMER.parser.accepts}.")
_NAME_OR_ARN: Final = checked(
    lambda text: (_ARN if ":" in text else _CONSUMER).parse(text),
    "got {}, expected the name or the ARN of a stream consumer.",
)


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
    found = run_until_signal(_list(properties))
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
        rows = (
            (stream_name, one.name, one.status, iso_utc(one.created_at)[:19], one.arn)
            for stream_name, one in found
        )
        table = new_table("Stream", "Name", "Status", "Created", "ARN", rows=rows, no_wrap=True)
        # Whole on any terminal, so that it can be copied.
        table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
        print_rich(table)
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
    # It stays until it is removed by hand.
    never = {RegistrationConfig.deregister.full_key: DeregistrationPolicy.NEVER.value}
    properties = connection.properties_without_reading(never)
    run_until_signal(_print_properties(properties, name, is_registering=True, is_waiting=wait))


@consumers.command()
@click.argument("name", type=_NAME)
@click.option(
    "--timeout",
    type=checked(_TIMEOUT.parse, "{} is not a duration such as 90s, 10m or 2h."),
    metavar="DURATION",
    help="How long to wait, such as 90s or 5m. By default, "
    f"{_TIMEOUT.full_key}, which is {_TIMEOUT.default:g} s.",
)
@connection_options
def wait(name: str, timeout: float | None, connection: Connection) -> None:
    """Wait until the consumer NAME is ACTIVE, and print the property to use.

    \b
    Example:
      kinesis-publishers consumers wait reports --stream orders --timeout 2m
    """
    given = {} if timeout is None else {_TIMEOUT.full_key: str(timeout)}
    properties = connection.properties_without_reading(given)
    run_until_signal(_print_properties(properties, name, is_waiting=True))


@consumers.command()
@click.argument("consumer", metavar="NAME_OR_ARN", type=_NAME_OR_ARN)
@yes_option
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
    found = run_until_signal(_list(properties, {consumer}))
    if found:
        _remove(properties, found, yes=yes, warning="Its readers stop.")
    else:
        say(f"There is no stream consumer {consumer}: nothing to do.")


@consumers.command()
@yes_option
@lease_options
def prune(yes: bool, properties: Properties) -> None:
    """Remove what the workers of an application have registered, if none of them is left.

    The last worker that stops removes the consumer; one that is killed leaves it behind. Nothing is
    removed that a worker of the application has not registered.

    \b
    Example:
      kinesis-publishers consumers prune --config my.properties
    """
    found = run_until_signal(_left_behind(properties))
    if found:
        _remove(properties, found, yes=yes, warning="No worker is left.")
    else:
        say("The workers of this application have left no stream consumer: nothing to do.")


def _remove(properties: Properties, found: _Found, *, yes: bool, warning: str) -> None:
    """Remove exactly these, and wait until they are DELETING or gone."""
    if not yes:
        say("\n".join(f"{one.arn} ({one.status})" for _, one in found))
        confirm(f"{warning} Remove it?", refusal="nothing was removed")

    async def deregister_all() -> bool:
        gone = []
        async with open_control(properties) as control:
            for stream_name, one in found:
                gone.append(await deregister_consumer(one.arn, control.registration, control))
                if gone[-1]:
                    say(f"{one.name} is removed from {stream_name}.")
        return all(gone)

    if not run_until_signal(deregister_all()):
        raise click.ClickException("A stream consumer was not removed.")


async def _left_behind(properties: Properties) -> _Found:
    """Return the consumers that workers have registered; fail while a worker is alive."""
    async with open_store(properties) as store:
        shards = shards_of(await load_rows(store, properties))
        arns = {arn for row in shards.values() if (arn := lease_of(row).consumer_arn)}
        if not arns:
            return []
        await settled_rows(store, properties, shards)
    return await _list(properties, arns)


async def _list(properties: Properties, wanted: Collection[str] = ()) -> _Found:
    """Return the consumers of these names and ARNs, or all; each with the name of its stream.

    The ARN of a consumer does not select a later one of the same name.
    """
    async with open_control(properties) as control:
        return [
            (stream.name, one)
            for stream in await control.streams()
            for one in await list_consumers(stream.arn, control.registration, control)
            if not wanted or one.name in wanted or one.arn in wanted
        ]


async def _print_properties(
    properties: Properties, name: str, *, is_waiting: bool, is_registering: bool = False
) -> None:
    async with open_control(properties) as control:
        for stream in await control.streams():
            if is_registering:
                consumer = await _register(control, stream, name)
            if is_waiting:
                consumer = await _wait_until_active(control, stream.arn, name)
            say(f"The stream consumer is {consumer.status}. The property for registration NONE:")
            key = RegistrationConfig.consumer_arn.of(stream.name).full_key
            click.echo(printable(f"{key}={consumer.arn}"))


async def _register(control: ControlServices, stream: StreamIdentity, name: str) -> StreamConsumer:
    # Without files nothing is recorded, so no reader removes what a person registered.
    lease = ConsumerLease(control.clock)
    registration = ConsumerRegistration(stream.arn, name, control.registration, control, lease)
    while (consumer := await registration.register_if_absent()) is None:
        pass
    _refuse_deleting(consumer, stream.arn)
    is_new = consumer.arn == registration.registered_arn
    say(f"{name} is {'registered' if is_new else 'there already'} on {stream.name}.")
    return consumer


async def _wait_until_active(
    control: ControlServices, stream_arn: str, name: str
) -> StreamConsumer:
    timeout_seconds, clock = control.registration.register_timeout_seconds, control.clock
    began_at, attempt = clock.monotonic(), 0
    while True:
        consumer = await find_consumer(stream_arn, name, control.registration, control)
        if consumer is None:
            raise click.ClickException(
                f"{stream_arn} has no stream consumer {name}: register it "
                f"(kinesis-publishers consumers register {name})."
            )
        _refuse_deleting(consumer, stream_arn)
        if consumer.status == "ACTIVE":
            return consumer
        elapsed = clock.monotonic() - began_at
        if elapsed >= timeout_seconds:
            raise click.ClickException(
                f"The stream consumer {name} on {stream_arn} is still {consumer.status} after "
                f"{elapsed:.0f} s: wait again, with a longer --timeout if AWS is slow."
            )
        attempt += 1
        delay = control.registration.register_retry.delay_seconds(attempt)
        await clock.sleep(min(delay, timeout_seconds - elapsed))


def _refuse_deleting(consumer: StreamConsumer, stream_arn: str) -> None:
    if consumer.status == "DELETING":
        raise click.ClickException(
            f"The stream consumer {consumer.name} on {stream_arn} is being removed: register it "
            "again once it is gone, which takes about a minute."
        )
