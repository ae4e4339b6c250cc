"""What reads streams: whole shards, exact ranges, and the ends of ranges; built by the assembly."""

from kinesis_publishers.assembly import publisher_factory_class, with_region
from kinesis_publishers.clock import ServiceClock
from kinesis_publishers.model import PositionType, is_refresh_due
from kinesis_publishers.readers.bounded_read import BatchBounds, Narrowing, is_after, plan_batch
from kinesis_publishers.readers.eager_registration import register_consumers
from kinesis_publishers.readers.fetcher import KinesisDataFetcher
from kinesis_publishers.readers.guard import ConsumerGuard
from kinesis_publishers.readers.range_ends import FoundRanges, KinesisRangeFinder, ReadLimit
from kinesis_publishers.readers.range_reader import KinesisRangeReader, as_polling

__all__ = [
    "BatchBounds",
    "ConsumerGuard",
    "FoundRanges",
    "KinesisDataFetcher",
    "KinesisRangeFinder",
    "KinesisRangeReader",
    "Narrowing",
    "PositionType",
    "ReadLimit",
    "ServiceClock",
    "as_polling",
    "is_after",
    "is_refresh_due",
    "plan_batch",
    "publisher_factory_class",
    "register_consumers",
    "with_region",
]
