"""The replaceable parts of the framework, one interface per file."""

from kinesis_publishers.abc.control_plane import ControlPlane
from kinesis_publishers.abc.data_plane import DataPlane
from kinesis_publishers.abc.record_publisher import RecordBatchConsumer, RecordPublisher
from kinesis_publishers.abc.record_publisher_factory import (
    PublisherContext,
    RecordPublisherFactory,
)

__all__ = [
    "ControlPlane",
    "DataPlane",
    "PublisherContext",
    "RecordBatchConsumer",
    "RecordPublisher",
    "RecordPublisherFactory",
]
