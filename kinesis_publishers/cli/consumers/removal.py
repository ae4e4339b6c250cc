"""Finds stream consumers and removes them; between the two somebody may be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.assembly import open_control
from kinesis_publishers.cli.console import say
from kinesis_publishers.cli.consumers.actions import find_consumer
from kinesis_publishers.registration import deregister_consumer
from kinesis_publishers.registration.consumer_arns import consumer_name_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import StreamConsumer

__all__ = ["find_consumers", "remove_consumers"]


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
            if (consumer := await find_consumer(control, stream.arn, name)) is not None
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
