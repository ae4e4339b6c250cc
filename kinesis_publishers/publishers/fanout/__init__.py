"""Enhanced fan-out with SubscribeToShard."""

from kinesis_publishers.publishers.fanout.factory import FanOutRecordPublisherFactory
from kinesis_publishers.publishers.fanout.publisher import FanOutRecordPublisher

__all__ = ["FanOutRecordPublisher", "FanOutRecordPublisherFactory"]
