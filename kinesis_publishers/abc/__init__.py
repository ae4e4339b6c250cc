"""The replaceable parts of the framework, one interface per file."""

from kinesis_publishers.abc.checkpoint_store import CheckpointStore, CheckpointStoreContext
from kinesis_publishers.abc.control_plane import ControlContext, ControlPlane
from kinesis_publishers.abc.data_plane import DataPlane, ShardSubscription
from kinesis_publishers.abc.event_reporter import EventReporter
from kinesis_publishers.abc.record_publisher import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.abc.record_publisher_factory import (
    PublisherContext,
    RecordPublisherFactory,
)
from kinesis_publishers.abc.stream_consumer_registrar import StreamConsumerRegistrar

__all__ = [
    "CheckpointStore",
    "CheckpointStoreContext",
    "ControlContext",
    "ControlPlane",
    "DataPlane",
    "EventReporter",
    "PublisherContext",
    "RecordBatchConsumer",
    "RecordPublisher",
    "RecordPublisherFactory",
    "ShardSubscription",
    "StreamConsumerRegistrar",
]
