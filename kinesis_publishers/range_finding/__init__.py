"""Finds how far shards may be read now, by looking at a few records: Kinesis has no call for it."""

from kinesis_publishers.range_finding.admission import ReadLimit
from kinesis_publishers.range_finding.finder import FoundRanges, KinesisRangeFinder

__all__ = ["FoundRanges", "KinesisRangeFinder", "ReadLimit"]
