"""Polling with GetRecords."""

from kinesis_publishers.publishers.polling.factory import PollingRecordPublisherFactory
from kinesis_publishers.publishers.polling.publisher import PollingRecordPublisher

__all__ = ["PollingRecordPublisher", "PollingRecordPublisherFactory"]
