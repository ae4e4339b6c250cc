"""Loads the classes that a configuration names, and makes what they are for.

All functions raise ``PluginLoadError`` for a class that cannot be loaded or does not fit.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_publishers.abc import (
    CheckpointStore,
    ControlPlane,
    DataPlane,
    Partitioner,
    RecordPublisherFactory,
    ShardAssigner,
    WatermarkAssigner,
)
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import (
    AssignmentConfig,
    AwsConfig,
    CheckpointConfig,
    MetricsConfig,
    ProducerConfig,
    Properties,
    SourceConfig,
    WatermarkConfig,
    selected_streams,
)
from kinesis_publishers.config.option import Option
from kinesis_publishers.config.plugins import load_class, load_plugin
from kinesis_publishers.config.sections.source import selected_source
from kinesis_publishers.errors import MissingOptionError, PluginLoadError
from kinesis_publishers.events import EventSink
from kinesis_publishers.metrics.sinks import open_event_sink

if TYPE_CHECKING:
    from kinesis_publishers.aws.control_plane import Boto3ControlPlane
    from kinesis_publishers.aws.data_plane import AioDataPlane

_T = TypeVar("_T")


def open_events(properties: Properties) -> AbstractAsyncContextManager[EventSink]:
    """Return the context of the sinks of ``properties``, for what neither reads nor writes."""
    if "cloudwatch" in MetricsConfig.from_properties(properties).sinks:
        properties = with_region(properties)
    return open_event_sink(properties, SystemClock())


def assigner_of(properties: Properties) -> ShardAssigner:
    name = AssignmentConfig.from_properties(properties).assigner
    return _made(AssignmentConfig.written_assigner, ShardAssigner, properties, name)


def partitioner_of(properties: Properties) -> Partitioner:
    return _made(ProducerConfig.partitioner, Partitioner, properties)  # type: ignore[type-abstract]


def watermark_assigner_of(properties: Properties) -> WatermarkAssigner:
    return _made(WatermarkConfig.assigner, WatermarkAssigner, properties)  # type: ignore[type-abstract]


def _made(option: Option[Any], base: type[_T], properties: Properties, name: str = "") -> _T:
    found: Any = load_plugin(option, name or properties.get(option), base)
    return checked(found.from_properties(properties), found, base)


def checkpoint_store_class(name: str) -> type[CheckpointStore]:
    return load_plugin(CheckpointConfig.store, name, CheckpointStore)  # type: ignore[type-abstract]


def publisher_factory_class(properties: Properties) -> type[RecordPublisherFactory]:
    option = SourceConfig.record_publisher
    return load_plugin(option, properties.get(option), RecordPublisherFactory)  # type: ignore[type-abstract]


def checked(made: object, made_by: type, base: type[_T]) -> _T:
    """Return what ``from_properties`` of a class has made, which must be a ``base``."""
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
    """
    aws = AwsConfig.from_properties(properties)
    named = (stream.region for stream in selected_streams(properties) if stream.region)
    region = aws.region or next(named, None)
    if region is None:
        # Only this needs the SDK.
        from kinesis_publishers.aws.credentials import region_of_machine

        region = region_of_machine(aws)
    if region is None:
        raise MissingOptionError(
            f"no region: set {AwsConfig.region.full_key} (as eu-west-1), or give "
            "the stream by its ARN, or set AWS_REGION in the environment"
        )
    return properties.with_values({AwsConfig.region: region})
