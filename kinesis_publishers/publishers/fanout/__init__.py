"""Enhanced fan-out with SubscribeToShard."""

from kinesis_publishers.publishers.fanout.publisher import (
    FanOutRecordPublisher,
    FanOutRecordPublisherFactory,
)

__all__ = ["FanOutRecordPublisher", "FanOutRecordPublisherFactory"]
