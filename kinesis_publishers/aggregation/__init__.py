"""The aggregate format of the Kinesis Producer Library: decoding and packing, without I/O."""

from kinesis_publishers.aggregation.aggregator import AggregatedRecord, RecordAggregator
from kinesis_publishers.aggregation.codec import UserRecordColumns, decode_aggregate, has_aggregates
from kinesis_publishers.aggregation.deaggregation import Expansion, expand

__all__ = [
    "AggregatedRecord",
    "Expansion",
    "RecordAggregator",
    "UserRecordColumns",
    "decode_aggregate",
    "expand",
    "has_aggregates",
]
