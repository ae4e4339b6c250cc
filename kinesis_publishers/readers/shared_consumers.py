"""The stream consumers of an application with several workers: the last worker removes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import define

from kinesis_publishers.assembly import open_control
from kinesis_publishers.config import (
    DeregistrationPolicy,
    LeaseConfig,
    Properties,
    RegistrationConfig,
)
from kinesis_publishers.config.sections.source import built_in_publisher
from kinesis_publishers.events import Event, EventSink
from kinesis_publishers.leases.leases import LeasedShards
from kinesis_publishers.registration import deregister_consumer


@define(eq=False)
class SharedConsumers:
    """What a fetcher is opened with; its leases, once they are known, learn of its consumers."""

    properties: Properties
    events: EventSink | None
    leases: LeasedShards | None = None


@asynccontextmanager
async def shared_consumers(
    properties: Properties, events: EventSink | None
) -> AsyncIterator[SharedConsumers]:
    """Yield what to open a fetcher with; remove the consumers if its worker was the last one."""
    known = built_in_publisher(properties)
    registers = known is None or known.needs_registration
    if not (registers and LeaseConfig.from_properties(properties).is_enabled):
        yield SharedConsumers(properties, events)
        return
    policy = properties.get(RegistrationConfig.deregister)
    # A process cannot know whether it is the last one, until its leases say so.
    never = {RegistrationConfig.deregister: DeregistrationPolicy.NEVER.value}
    shared = SharedConsumers(properties.with_values(never), None)

    def tell(event: Event) -> None:
        if shared.leases is not None:
            shared.leases.note_event(event)
        if events is not None:
            events(event)

    shared.events = tell
    try:
        yield shared
    finally:
        unused = shared.leases.unused_consumers() if shared.leases is not None else ()
        if unused and policy is DeregistrationPolicy.CREATED:
            async with open_control(properties) as control:
                for arn in unused:
                    await deregister_consumer(arn, control.registration, control)
