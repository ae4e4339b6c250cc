"""The aggregate format of the Kinesis Producer Library: decoding and packing, without I/O."""

from kinesis_publishers.aggregation.aggregator import AggregatedRecord as AggregatedRecord
from kinesis_publishers.aggregation.aggregator import RecordAggregator as RecordAggregator
from kinesis_publishers.aggregation.codec import UserRecordColumns as UserRecordColumns
from kinesis_publishers.aggregation.codec import decode_aggregate as decode_aggregate
from kinesis_publishers.aggregation.codec import has_aggregates as has_aggregates
from kinesis_publishers.aggregation.deaggregation import Expansion as Expansion
from kinesis_publishers.aggregation.deaggregation import expand as expand
