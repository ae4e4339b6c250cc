"""Polling with GetRecords."""

from kinesis_publishers.publishers.polling.publisher import (
    PollingRecordPublisher,
    PollingRecordPublisherFactory,
)

__all__ = ["PollingRecordPublisher", "PollingRecordPublisherFactory"]
