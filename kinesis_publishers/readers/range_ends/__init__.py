"""Finds how far shards may be read now, by looking at a few records: Kinesis has no call for it."""

from kinesis_publishers.readers.range_ends.admission import ReadLimit
from kinesis_publishers.readers.range_ends.finder import FoundRanges, KinesisRangeFinder

__all__ = ["FoundRanges", "KinesisRangeFinder", "ReadLimit"]
