"""The stream consumers of an application with several workers: the last worker removes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
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
from kinesis_publishers.leases.assigned import LeasedShards
from kinesis_publishers.registration import deregister_consumer


@define(eq=False)
class SharedConsumers:
    """What a fetcher is opened with, so that its leases learn what they need of its consumers.

    Attributes:
        properties: with several workers, those by which a process removes no consumer: it cannot
            know whether it is the last one.
        events: takes diagnostic events in addition to the sinks that the properties name.
    """

    properties: Properties
    events: EventSink | None
    _leases: LeasedShards | None = None

    def use(self, leases: LeasedShards | None) -> None:
        """Let ``leases`` see the events from now on."""
        self._leases = leases

    @property
    def unused(self) -> Collection[str]:
        """The ARNs of the consumers that no worker is left to use."""
        return () if self._leases is None else self._leases.unused_consumers()

    def tell(self, event: Event, others: EventSink | None) -> None:
        """Pass an event on."""
        if self._leases is not None:
            self._leases.note_event(event)
        if others is not None:
            others(event)


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
    never = {RegistrationConfig.deregister: DeregistrationPolicy.NEVER.value}
    shared = SharedConsumers(properties.with_values(never), None)
    shared.events = lambda event: shared.tell(event, events)
    try:
        yield shared
    finally:
        if policy is DeregistrationPolicy.CREATED:
            await _remove(shared.unused, properties)


async def _remove(unused: Collection[str], properties: Properties) -> None:
    if unused:
        async with open_control(properties) as control:
            for arn in unused:
                await deregister_consumer(arn, control.registration, control)
