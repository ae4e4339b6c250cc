"""What the commands do with stream consumers; each action may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.shared.console import say
from kinesis_publishers.errors import (
    ConsumerNotFoundError,
    LimitExceededError,
    ResourceInUseError,
    RetriesExhaustedError,
)
from kinesis_publishers.events import ConsumerRegistered
from kinesis_publishers.registration import deregister_consumer
from kinesis_publishers.registration.consumers import consumer_name_in, find_consumer
from kinesis_publishers.registration.registering import consumer_limit_error
from kinesis_publishers.retry import call_with_retries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.assembly import ControlServices
    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import StreamConsumer

__all__ = [
    "find_consumers",
    "register_consumer",
    "remove_consumers",
    "wait_until_active",
]


async def register_consumer(
    control: ControlServices, stream_arn: str, name: str
) -> tuple[StreamConsumer, bool]:
    """Return the consumer of this name, and whether it has just been registered.

    Raises:
        ResourceInUseError: it is being removed.
        LimitExceededError: the stream takes no further consumer; names those that it has.
    """
    found = await find_consumer(stream_arn, name, control.registration, control)
    if found is not None:
        _refuse_deleting(found, stream_arn)
        return found, False
    try:
        consumer = await call_with_retries(
            lambda: _register_or_find(control, stream_arn, name),
            policy=control.registration.register_retry,
            clock=control.clock,
        )
    except RetriesExhaustedError as error:
        cause = error.__cause__
        if not isinstance(cause, LimitExceededError):
            raise
        raise await consumer_limit_error(
            stream_arn, name, cause, control.registration, control
        ) from error
    control.events(ConsumerRegistered(stream_arn=stream_arn, consumer_arn=consumer.arn))
    return consumer, True


async def wait_until_active(
    control: ControlServices, stream_arn: str, name: str, *, timeout_seconds: float
) -> StreamConsumer:
    """Return the consumer of this name once it is ACTIVE.

    Raises:
        ConsumerNotFoundError: there is none.
        ResourceInUseError: it is being removed.
        RetriesExhaustedError: it took longer than ``timeout_seconds``.
    """
    clock, attempt = control.clock, 0
    began_at = clock.monotonic()
    while True:
        consumer = await find_consumer(stream_arn, name, control.registration, control)
        if consumer is None:
            raise ConsumerNotFoundError(
                f"{stream_arn} has no stream consumer {name}: register it "
                f"(kinesis-publishers consumers register {name}).",
                operation="DescribeStreamConsumer",
            )
        _refuse_deleting(consumer, stream_arn)
        if consumer.status == "ACTIVE":
            return consumer
        attempt += 1
        elapsed = clock.monotonic() - began_at
        if elapsed >= timeout_seconds:
            raise RetriesExhaustedError(
                f"The stream consumer {name} on {stream_arn} is still {consumer.status} after "
                f"{elapsed:.0f} s: wait again, with a longer --timeout if AWS is slow.",
                attempts=attempt,
                elapsed_seconds=elapsed,
            )
        delay = control.registration.register_retry.delay_seconds(attempt)
        await clock.sleep(min(delay, timeout_seconds - elapsed))


async def _register_or_find(control: ControlServices, stream_arn: str, name: str) -> StreamConsumer:
    try:
        return await control.control_plane.register_stream_consumer(stream_arn, name)
    except ResourceInUseError:
        # Another process was faster, or the answer to an earlier attempt was lost.
        return await control.control_plane.describe_stream_consumer(stream_arn, name)


def _refuse_deleting(consumer: StreamConsumer, stream_arn: str) -> None:
    if consumer.status == "DELETING":
        raise ResourceInUseError(
            f"The stream consumer {consumer.name} on {stream_arn} is being removed: register it "
            "again once it is gone, which takes about a minute.",
            operation="DescribeStreamConsumer",
            code="DELETING",
        )


async def find_consumers(
    properties: Properties, name_or_arn: str
) -> list[tuple[str, StreamConsumer]]:
    """Return the consumers of this name or ARN, each with the name of its stream.

    A later consumer of the same name has another ARN and is not meant by that.
    """
    is_arn = ":" in name_or_arn
    name = consumer_name_in(name_or_arn) if is_arn else name_or_arn
    async with open_control(properties) as control:
        found = [
            (stream.name, consumer)
            for stream in await control.streams()
            if (consumer := await find_consumer(stream.arn, name, control.registration, control))
        ]
    return [one for one in found if not is_arn or one[1].arn == name_or_arn]


async def remove_consumers(
    properties: Properties, found: Sequence[tuple[str, StreamConsumer]]
) -> bool:
    """Remove exactly these, and wait until they are DELETING or gone; return whether all are."""
    async with open_control(properties) as control:
        gone = [
            await deregister_consumer(consumer.arn, control.registration, control)
            for _, consumer in found
        ]
    for (stream_name, consumer), is_gone in zip(found, gone, strict=True):
        if is_gone:
            say(f"{consumer.name} is removed from {stream_name}.")
    return all(gone)
