"""Names that configurations have, and the classes that they mean: the only place with both."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kinesis_publishers.abc import (
    CheckpointStore,
    ControlPlane,
    DataPlane,
    EventReporter,
    Partitioner,
    RecordPublisherFactory,
    ShardAssigner,
    WatermarkAssigner,
)
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    AssignmentConfig,
    AwsConfig,
    MetricsConfig,
    ProducerConfig,
    Properties,
    SourceConfig,
    WatermarkConfig,
    resolve_region,
    selected_streams,
)
from kinesis_publishers.config.plugins import (
    CHECKPOINT_STORES_GROUP,
    PARTITIONERS_GROUP,
    SHARD_ASSIGNERS_GROUP,
    WATERMARK_ASSIGNERS_GROUP,
    load_class,
    load_plugin,
)
from kinesis_publishers.config.sections.leases import ALL, LEASES, MANUAL
from kinesis_publishers.config.sections.producing import RANDOM
from kinesis_publishers.config.sections.source import built_in_publisher, selected_source
from kinesis_publishers.config.sections.watermarks import ARRIVAL
from kinesis_publishers.errors import PluginLoadError
from kinesis_publishers.events import EventSink
from kinesis_publishers.metrics.sinks import load_event_reporter, open_event_sink

if TYPE_CHECKING:
    from kinesis_publishers.aws.control_plane import Boto3ControlPlane
    from kinesis_publishers.aws.data_plane import AioDataPlane

_T = TypeVar("_T")

# Stores and sinks by name: what they import takes longer to load than everything else together, and
# OpenTelemetry, SQLAlchemy and Redis are extras.
_STORES = {
    "memory": "kinesis_publishers.checkpoints.memory:MemoryCheckpointStore",
    "sqlite": "kinesis_publishers.checkpoints.sqlite:SqliteCheckpointStore",
    "dynamodb": "kinesis_publishers.checkpoints.dynamodb:DynamoDbCheckpointStore",
    "sql": "kinesis_publishers.checkpoints.sql:SqlCheckpointStore",
    "redis": "kinesis_publishers.checkpoints.redis:RedisCheckpointStore",
}

KCL_TABLE: Final = "kinesis_publishers.checkpoints.kcl_table:KclLeaseTable"
_ASSIGNERS = {
    ALL: "kinesis_publishers.leases.assigners:AllShards",
    MANUAL: "kinesis_publishers.leases.assigners:NamedShards",
    # They are those of the checkpointer.
    LEASES: "kinesis_publishers.leases.assigners:AllShards",
}

_PARTITIONERS = {RANDOM: "kinesis_publishers.producing.routing:RandomPartitioner"}
_WATERMARK_ASSIGNERS = {ARRIVAL: "kinesis_publishers.engine.watermarks:ArrivalTime"}

REPORTERS: Final = {
    "log": "kinesis_publishers.metrics.sinks:EventLog",
    "summary": "kinesis_publishers.metrics.summary:SummaryLog",
    "opentelemetry": "kinesis_publishers.metrics.open_telemetry:OpenTelemetryMetrics",
    "prometheus": "kinesis_publishers.metrics.prometheus:PrometheusMetrics",
    "cloudwatch": "kinesis_publishers.metrics.cloudwatch:CloudWatchMetrics",
}


def open_events(properties: Properties) -> AbstractAsyncContextManager[EventSink]:
    """Return the context of the sinks of ``properties``, for what neither reads nor writes."""
    if "cloudwatch" in MetricsConfig.from_properties(properties).sinks:
        properties = with_region(properties)
    return open_event_sink(properties, REPORTERS, SystemClock())


def assigner_of(properties: Properties) -> ShardAssigner:
    """Return what decides which shards this process reads.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    name = AssignmentConfig.from_properties(properties).assigner
    found = load_plugin(_ASSIGNERS.get(name, name), ShardAssigner, group=SHARD_ASSIGNERS_GROUP)
    return checked(found.from_properties(properties), found, ShardAssigner)


def partitioner_of(properties: Properties) -> Partitioner:
    """Return what ``producer.partitioner`` names.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    name = ProducerConfig.from_properties(properties).partitioner
    found = load_plugin(_PARTITIONERS.get(name, name), Partitioner, group=PARTITIONERS_GROUP)  # type: ignore[type-abstract]
    return checked(found.from_properties(properties), found, Partitioner)  # type: ignore[type-abstract]


def watermark_assigner_of(properties: Properties) -> WatermarkAssigner:
    """Return what ``watermark.assigner`` names.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    base, name = WatermarkAssigner, WatermarkConfig.from_properties(properties).assigner
    reference = _WATERMARK_ASSIGNERS.get(name, name)
    found = load_plugin(reference, base, group=WATERMARK_ASSIGNERS_GROUP)  # type: ignore[type-abstract]
    return checked(found.from_properties(properties), found, base)  # type: ignore[type-abstract]


def checkpoint_store_class(name: str) -> type[CheckpointStore]:
    """Return the store that ``checkpoint.store`` names.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    try:
        return load_plugin(
            _STORES.get(name, name),
            CheckpointStore,  # type: ignore[type-abstract]
            group=CHECKPOINT_STORES_GROUP,
        )
    except PluginLoadError as error:
        if name not in _STORES:
            raise
        raise PluginLoadError(
            f"kinesis.checkpoint.store = {name}: {error}; pip install 'kinesis-publishers[{name}]'"
        ) from error


def event_reporter_classes(properties: Properties) -> list[type[EventReporter]]:
    """Return the sinks that ``metrics.sinks`` names.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    names = MetricsConfig.from_properties(properties).sinks
    return [load_event_reporter(name, REPORTERS) for name in names]


def publisher_factory_class(properties: Properties) -> type[RecordPublisherFactory]:
    """Return the factory that ``stream.recordpublisher`` names, with what it can do.

    Raises:
        PluginLoadError: a custom class cannot be loaded or does not fit.
    """
    known = built_in_publisher(properties)
    name = known.factory if known else properties.get(SourceConfig.record_publisher)
    return load_plugin(name, RecordPublisherFactory)  # type: ignore[type-abstract]


def checked(made: object, made_by: type, base: type[_T]) -> _T:
    """Return what ``from_properties`` of a class has made, which must be a ``base``.

    Raises:
        PluginLoadError: it is something else.
    """
    if isinstance(made, base):
        return made
    raise PluginLoadError(
        f"{made_by.__module__}:{made_by.__qualname__}: from_properties() returned "
        f"{type(made).__name__}, which does not extend {base.__name__}: return an instance of the "
        "class"
    )


def control_plane_of(properties: Properties, clock: Clock) -> Boto3ControlPlane:
    """Return the control plane of the service that has the streams; the SDK is loaded now."""
    found: Any = load_class(selected_source(properties).control_plane, ControlPlane)
    return found(AwsConfig.from_properties(properties), clock)  # type: ignore[no-any-return]


def data_plane_of(properties: Properties, clock: Clock, *, reads: bool) -> AioDataPlane:
    """Return the data plane of that service; one that does not read writes."""
    found: Any = load_class(selected_source(properties).data_plane, DataPlane)
    return found.from_properties(properties, clock, reads=reads)  # type: ignore[no-any-return]


def with_region(properties: Properties) -> Properties:
    """Return ``properties`` with the region that applies: theirs, the streams', or this machine's.

    Other processes, which may have another environment, then read the same region.

    Raises:
        MissingOptionError: nothing names a region.
    """
    aws = AwsConfig.from_properties(properties)

    def ask_machine() -> str | None:
        from kinesis_publishers.aws.credentials import region_of_machine

        return region_of_machine(aws)

    region = resolve_region(aws, selected_streams(properties), ask_machine)
    return properties.with_values({AwsConfig.region: region})
