"""Finds how far shards may be read now, by looking at a few records: Kinesis has no call for it."""

from kinesis_publishers.readers.range_ends.finder import Ends, KinesisRangeFinder
from kinesis_publishers.readers.range_ends.rules import Portion, ReadLimit

__all__ = ["Ends", "KinesisRangeFinder", "Portion", "ReadLimit"]
