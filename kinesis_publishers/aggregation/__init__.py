"""The aggregate format of the Kinesis Producer Library: decoding and packing, without I/O."""

from kinesis_publishers.aggregation.aggregator import AggregatedRecord as AggregatedRecord
from kinesis_publishers.aggregation.aggregator import Packable as Packable
from kinesis_publishers.aggregation.aggregator import pack_first as pack_first
from kinesis_publishers.aggregation.aggregator import pack_plain as pack_plain
from kinesis_publishers.aggregation.aggregator import pack_user_records as pack_user_records
from kinesis_publishers.aggregation.codec import decode_aggregate as decode_aggregate
from kinesis_publishers.aggregation.codec import has_aggregates as has_aggregates
from kinesis_publishers.aggregation.deaggregation import expand as expand
