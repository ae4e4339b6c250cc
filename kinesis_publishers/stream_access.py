"""What describes streams and manages their consumers, apart from reading."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.abc import PublisherContext
from kinesis_publishers.assembly import with_region
from kinesis_publishers.clock import SystemClock
from kinesis_publishers.config import (
    AwsConfig,
    DiscoveryConfig,
    RegistrationConfig,
    StreamsConfig,
)
from kinesis_publishers.events import log_event
from kinesis_publishers.shard_discovery import ShardDiscovery
from kinesis_publishers.transport import AioDataPlane, Boto3ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import StreamIdentity

__all__ = ["StreamAccess", "open_stream_access"]


@frozen(kw_only=True)
class StreamAccess:
    """The open control plane, and what decides how it is called.

    Attributes:
        context: control plane, clock and event sink.
        discovery: describes streams and lists shards, with retries.
        registration: retries and timeouts of consumers.
        selectors: names or ARNs of the streams.
    """

    context: PublisherContext
    discovery: ShardDiscovery
    registration: RegistrationConfig
    selectors: tuple[str, ...]

    async def streams(self) -> list[StreamIdentity]:
        """Return the streams as they exist now.

        Raises:
            StreamNotFoundError: one does not exist.
        """
        return [(await self.discovery.describe(one)).identity for one in self.selectors]


@asynccontextmanager
async def open_stream_access(properties: Properties) -> AsyncIterator[StreamAccess]:
    """Open the control plane that ``properties`` describe, and close it.

    Raises:
        ConfigError: the properties cannot work.
    """
    properties = with_region(properties)
    clock, aws = SystemClock(), AwsConfig.from_properties(properties)
    async with Boto3ControlPlane(aws) as control_plane:
        yield StreamAccess(
            context=PublisherContext(
                # Not opened: nothing is read here.
                data_plane=AioDataPlane(aws, clock=clock),
                control_plane=control_plane,
                clock=clock,
                events=log_event,
            ),
            discovery=ShardDiscovery(
                control_plane, DiscoveryConfig.from_properties(properties), clock
            ),
            registration=RegistrationConfig.from_properties(properties),
            selectors=tuple(
                one.arn or one.name for one in StreamsConfig.from_properties(properties).streams
            ),
        )
