"""Finds how far shards may be read now, by looking at a few records: Kinesis has no call for it."""

from kinesis_publishers.engine.alignment import ReadLimit as ReadLimit
from kinesis_publishers.readers.range_ends.finder import Ends as Ends
from kinesis_publishers.readers.range_ends.finder import KinesisRangeFinder as KinesisRangeFinder
from kinesis_publishers.readers.range_ends.rules import Portion as Portion
