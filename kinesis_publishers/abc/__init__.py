"""The replaceable parts of the framework, as interfaces."""

from kinesis_publishers.abc.checkpoint_store import CheckpointStore, CheckpointStoreContext
from kinesis_publishers.abc.event_reporter import EventReporter
from kinesis_publishers.abc.planes import (
    ControlContext,
    ControlPlane,
    DataPlane,
    ShardSubscription,
)
from kinesis_publishers.abc.publisher import (
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
    StreamConsumerRegistrar,
)

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
