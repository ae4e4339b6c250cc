"""Builds what writes records from properties."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen

from kinesis_publishers.abc import Partitioner, RecordWriter
from kinesis_publishers.assembly.classes import (
    data_plane_of,
    partitioner_of,
    with_region,
)
from kinesis_publishers.assembly.services import open_control
from kinesis_publishers.clock import Clock, ServiceClock
from kinesis_publishers.config import ProducerConfig, Properties, StreamsConfig
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.events import EventSink
from kinesis_publishers.metrics.sinks import open_event_sink
from kinesis_publishers.model import Shard, StreamSummary


@frozen(kw_only=True)
class WritingServices:
    """What writing to one stream is made of.

    Attributes:
        stream: as it was described when this was opened.
    """

    stream: StreamSummary
    config: ProducerConfig
    writer: RecordWriter
    discovery: ShardDiscovery
    partitioner: Partitioner
    clock: Clock
    events: EventSink

    @property
    def arn(self) -> str:
        """The stream's ARN."""
        return self.stream.identity.arn

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.stream.identity.name

    async def list_shards(self) -> tuple[Shard, ...]:
        """List the open shards, and those that were closed a moment ago."""
        return await self.discovery.list_shards(self.arn, since=self.clock.now())


@asynccontextmanager
async def open_writing(
    properties: Properties, *, events: EventSink | None = None, clock: Clock | None = None
) -> AsyncIterator[WritingServices]:
    """Open the clients that ``properties`` describe, find the stream, and close them.

    Raises:
        ConfigError: the properties cannot work; found out before any call to AWS.
        KinesisPublishersError: the stream cannot be described.
    """
    clock = ServiceClock.around(clock)
    streams = StreamsConfig.from_properties(properties).streams
    if len(streams) > 1:
        names = ", ".join(one.name for one in streams)
        raise InvalidOptionError(
            f"{properties.written_key(StreamsConfig.names)} names {names}, and a producer writes "
            "to one stream: name one, or open a producer for each"
        )
    partitioner = partitioner_of(properties)
    properties = with_region(properties)
    async with (
        open_event_sink(properties, clock, further=events) as sink,
        open_control(properties, events=sink, clock=clock) as control,
        data_plane_of(properties, clock, reads=False) as data_plane,
    ):
        yield WritingServices(
            stream=await control.discovery.describe(streams[0].reference),
            config=ProducerConfig.from_properties(properties),
            writer=data_plane,
            discovery=control.discovery,
            partitioner=partitioner,
            clock=clock,
            events=sink,
        )
