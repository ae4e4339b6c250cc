"""Read Amazon Kinesis Data Streams: pluggable record publishers, from one properties dict."""

from kinesis_publishers.abc import (
    ControlPlane,
    DataPlane,
    PublisherContext,
    RecordBatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
)
from kinesis_publishers.clock import Clock, SystemClock
from kinesis_publishers.config import Properties
from kinesis_publishers.data_fetcher import KinesisDataFetcher, OnBatch
from kinesis_publishers.delivery import Delivery, DeliverySink, ShardStatus
from kinesis_publishers.events import Event, EventSink, log_event
from kinesis_publishers.model import (
    Record,
    RecordBatch,
    RecordPage,
    RunResult,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    ShardRange,
    StartingPosition,
    StreamIdentity,
    StreamProgress,
    UserRecord,
)
from kinesis_publishers.pending_pool import Reservation

__all__ = [
    "KinesisDataFetcher",
    "OnBatch",
    "Properties",
    "Record",
    "RecordBatch",
    "RecordPage",
    "UserRecord",
    "Shard",
    "ShardKey",
    "ShardProgress",
    "ShardRange",
    "ShardStatus",
    "SequenceNumber",
    "StartingPosition",
    "StreamIdentity",
    "StreamProgress",
    "Delivery",
    "DeliverySink",
    "Reservation",
    "RecordPublisher",
    "RecordPublisherFactory",
    "RecordBatchConsumer",
    "PublisherContext",
    "RunResult",
    "DataPlane",
    "ControlPlane",
    "Clock",
    "SystemClock",
    "Event",
    "EventSink",
    "log_event",
]
