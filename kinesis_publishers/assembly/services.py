"""Builds what reads, writes, checkpoints and describes from properties."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import field, frozen

from kinesis_publishers.abc import (
    CheckpointStore,
    CheckpointStoreContext,
    ControlContext,
    Partitioner,
    PublisherContext,
    RecordPublisher,
    RecordPublisherFactory,
    RecordWriter,
    ShardAssigner,
)
from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.assembly.classes import (
    assigner_of,
    checked,
    checkpoint_store_class,
    control_plane_of,
    data_plane_of,
    partitioner_of,
    publisher_factory_class,
    with_region,
)
from kinesis_publishers.clock import Clock, ServiceClock, SystemClock
from kinesis_publishers.config import (
    CheckpointConfig,
    DiscoveryConfig,
    InitialPositionConfig,
    LeaseConfig,
    LeaseFormat,
    OnInvalidAggregate,
    PendingConfig,
    ProcessingConfig,
    ProducerConfig,
    Properties,
    RegistrationConfig,
    SourceConfig,
    StreamsConfig,
    selected_streams,
)
from kinesis_publishers.engine.consumer_context import ConsumerContext, CreatePublisher
from kinesis_publishers.engine.data_loss import DataLossGuard
from kinesis_publishers.engine.delivery import DeliverySink
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.engine.ending import ReadingEnd
from kinesis_publishers.engine.pool import PendingPool
from kinesis_publishers.engine.slow_calls import SlowCalls
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.events import EventSink, ignore_event, log_event
from kinesis_publishers.leases.assigners import AllShards
from kinesis_publishers.metrics.sinks import open_event_sink
from kinesis_publishers.model import (
    Positions,
    Shard,
    StartingPosition,
    StreamIdentity,
    StreamSummary,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory

if TYPE_CHECKING:
    from kinesis_publishers.aws.control_plane import Boto3ControlPlane
    from kinesis_publishers.progress.checkpointer import Checkpointer
    from kinesis_publishers.progress.rows import KeptProgress


@frozen(kw_only=True)
class Services:
    """What reads records is made of.

    Attributes:
        streams: what to read: names or ARNs.
        initial: where what was not read before begins; LATEST is not pinned yet.
        polling: makes polling publishers, for looking at a shard with any ``factory``.
        clock: corrected by the service's.
        assigner: which shards are read, unless leases decide.
    """

    streams: tuple[str, ...]
    initial: Positions
    factory: RecordPublisherFactory
    polling: PollingRecordPublisherFactory
    discovery: ShardDiscovery
    pool: PendingPool
    aggregates: Deaggregator
    data_loss: DataLossGuard
    clock: Clock
    events: EventSink
    slow_calls: SlowCalls
    assigner: ShardAssigner = field(factory=AllShards)

    @property
    def range_factory(self) -> RecordPublisherFactory:
        """What reads ranges, large ones after a subscription; a custom publisher reads its own."""
        return self.polling if self.factory.subscribes else self.factory

    def consumer_context(
        self, sink: DeliverySink, create_publisher: CreatePublisher, end: ReadingEnd | None = None
    ) -> ConsumerContext:
        return ConsumerContext(
            create_publisher=create_publisher,
            pool=self.pool,
            sink=sink,
            aggregates=self.aggregates,
            data_loss=self.data_loss,
            clock=self.clock,
            events=self.events,
            end=end,
        )


@asynccontextmanager
async def open_services(
    properties: Properties,
    *,
    events: EventSink | None = None,
    clock: Clock | None = None,
    packs_columns: bool = False,
) -> AsyncIterator[Services]:
    """Open the clients that ``properties`` describe, yield the services, and close them.

    ``events`` takes diagnostic events in addition to the sinks that the properties name.
    ``packs_columns`` is that of :class:`~kinesis_publishers.DataPlane`.

    Raises:
        ConfigError: the properties cannot work; found out before any call to AWS.
    """
    streams = StreamsConfig.from_properties(properties)
    source = SourceConfig.from_properties(properties)
    factory_class = publisher_factory_class(properties)
    properties = with_region(properties)
    clock = ServiceClock.around(clock)
    async with (
        # The first to be opened and the last to be closed: closing the others is reported too.
        open_event_sink(properties, clock, further=events) as sink,
        open_control(properties, events=sink, clock=clock) as control,
        data_plane_of(properties, clock, reads=True) as data_plane,
    ):
        data_plane.packs_columns = packs_columns
        discovery = control.discovery

        async def poll_rest(position: StartingPosition, shard: Shard) -> RecordPublisher | None:
            is_closed = discovery.has_shown_closed(shard)
            return await polling.create(position, shard) if is_closed else None

        context = PublisherContext(
            data_plane=data_plane,
            control_plane=control.control_plane,
            clock=clock,
            events=sink,
            poll_rest=poll_rest,
        )
        polling = PollingRecordPublisherFactory.from_properties(properties, context)
        # Two would count the calls to a shard separately.
        is_polling = factory_class is type(polling)
        made = polling if is_polling else factory_class.from_properties(properties, context)
        factory = checked(made, factory_class, RecordPublisherFactory)  # type: ignore[type-abstract]
        pending = PendingConfig.from_properties(properties)
        pool = PendingPool(
            max_records=pending.max_records, max_bytes=pending.max_bytes, events=sink
        )
        try:
            yield Services(
                streams=tuple(stream.reference for stream in streams.streams),
                initial=InitialPositionConfig.from_properties(properties).positions,
                factory=factory,
                polling=polling,
                discovery=discovery,
                pool=pool,
                aggregates=Deaggregator(
                    source.aggregation,
                    sink,
                    discovery.list_shards,
                    fails_on_invalid=source.on_invalid_aggregate is OnInvalidAggregate.FAIL,
                    was_auto=discovery.was_auto,
                    clock=clock,
                ),
                data_loss=DataLossGuard(
                    fail=source.fail_on_data_loss,
                    events=sink,
                    clock=clock,
                    describe=discovery.describe_now,
                    has_shard=discovery.has_shard,
                ),
                clock=clock,
                events=sink,
                assigner=assigner_of(properties),
                slow_calls=SlowCalls(properties.get(ProcessingConfig.slow_after), clock, sink),
            )
        finally:
            pool.close()
            await factory.close()


@asynccontextmanager
async def open_checkpointer(
    properties: Properties, *, clock: Clock | None = None, events: EventSink = ignore_event
) -> AsyncIterator[Checkpointer | None]:
    """Open the store that ``properties`` name; yield what writes to it, ``None`` without one."""
    config = CheckpointConfig.from_properties(properties)
    if config.application is None:
        yield None
        return
    # Most readers keep no checkpoints of their own.
    from kinesis_publishers.leases.leases import Leases
    from kinesis_publishers.progress.checkpointer import Checkpointer
    from kinesis_publishers.progress.single_reader import SingleReader

    clock = clock or SystemClock()
    leases = LeaseConfig.from_properties(properties)
    async with open_checkpoint_store(properties, clock=clock, events=events) as store:
        if leases.is_enabled:
            stored: KeptProgress = Leases(store, leases, clock, events)
        else:
            stored = SingleReader(store, clock, events)
        checkpointer = Checkpointer(stored, config, clock)
        try:
            yield checkpointer
        finally:
            await checkpointer.release()


@asynccontextmanager
async def open_checkpoint_store(
    properties: Properties, *, clock: Clock, events: EventSink = ignore_event
) -> AsyncIterator[CheckpointStore]:
    """Open the store of the application, which has to be named, and close it."""
    config = CheckpointConfig.from_properties(properties)
    leases = LeaseConfig.from_properties(properties)
    if config.application is None:
        raise CheckpointConfig.application.missing()
    context = CheckpointStoreContext(
        application=config.application, retry=config.retry, clock=clock, events=events
    )
    is_kcl = leases.is_enabled and leases.format is LeaseFormat.KCL
    kcl_table = "kinesis_publishers.checkpoints.kcl_table:KclLeaseTable"
    store_class = checkpoint_store_class(kcl_table if is_kcl else config.store)
    made = store_class.from_properties(with_region(properties), context)
    async with checked(made, store_class, CheckpointStore) as store:  # type: ignore[type-abstract]
        yield store


@frozen(kw_only=True)
class ControlServices(ControlContext):
    """The open control plane, and what decides how it is called; streams are names or ARNs."""

    control_plane: Boto3ControlPlane
    discovery: ShardDiscovery
    registration: RegistrationConfig
    selectors: tuple[str, ...]

    async def streams(self) -> list[StreamIdentity]:
        """Return the streams as they exist now; raises ``StreamNotFoundError``."""
        return [(await self.discovery.describe(one)).identity for one in self.selectors]


@asynccontextmanager
async def open_control(
    properties: Properties, *, events: EventSink = log_event, clock: Clock | None = None
) -> AsyncIterator[ControlServices]:
    """Open the control plane that ``properties`` describe, and close it."""
    properties = with_region(properties)
    clock = ServiceClock.around(clock)
    discovery = DiscoveryConfig.from_properties(properties)
    async with control_plane_of(properties, clock) as control_plane:
        yield ControlServices(
            control_plane=control_plane,
            clock=clock,
            events=events,
            discovery=ShardDiscovery(control_plane, discovery, clock, events=events),
            registration=RegistrationConfig.from_properties(properties),
            selectors=tuple(one.reference for one in selected_streams(properties)),
        )


@frozen(kw_only=True)
class WritingServices:
    """What writing to one stream is made of, with the stream as it was at first."""

    stream: StreamSummary
    config: ProducerConfig
    writer: RecordWriter
    discovery: ShardDiscovery
    partitioner: Partitioner
    clock: Clock
    events: EventSink

    @property
    def arn(self) -> str:
        return self.stream.identity.arn

    @property
    def name(self) -> str:
        return self.stream.identity.name

    async def list_shards(self) -> tuple[Shard, ...]:
        """List the open shards, and those that were closed a moment ago."""
        return await self.discovery.list_shards(self.arn, since=self.clock.now())


@asynccontextmanager
async def open_writing(
    properties: Properties, *, events: EventSink | None = None, clock: Clock | None = None
) -> AsyncIterator[WritingServices]:
    """Open what ``properties`` describe, find the stream (or raise), and close it."""
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
