"""How shards are found, and how a shard is polled with GetRecords."""

from __future__ import annotations

from enum import Enum

from kinesis_publishers.config.option import Derived, Namespace, Option, Section
from kinesis_publishers.config.parsers import Choice, Duration, Flag, WholeNumber
from kinesis_publishers.config.recoverable_errors import RecoverableErrors, recoverable_errors
from kinesis_publishers.config.retries import RetryOptions

__all__ = ["DiscoveryConfig", "PollingConfig", "ShardOrder"]


class PollingConfig(Section, section="Polling"):
    """How a shard is polled with GetRecords.

    ``from_properties`` raises ``InvalidOptionError`` if a recoverable error cannot be imported.
    """

    max_records: Option[int] = Option(
        key="shard.getrecords.maxrecordcount",
        parser=WholeNumber(minimum=1, maximum=10_000),
        default=10_000,
        doc="The Limit of a GetRecords call.",
    )
    interval_seconds: Option[float] = Option(
        key="shard.getrecords.intervalmillis",
        # A shard iterator is valid for five minutes: a longer pause would let every one expire.
        parser=Duration(below=300_000.0),
        default=200.0,
        doc="The period of the polling loop of a shard, processing included.",
    )
    adaptive_reads: Option[bool] = Option(
        key="shard.adaptivereads",
        parser=Flag(),
        default=False,
        doc="Whether the Limit is adapted to the shard's 2 MiB/s by the average size of a record.",
    )
    get_records_retry: RetryOptions = RetryOptions(
        "shard.getrecords", "GetRecords", retries=3, base=300, longest=1000
    )
    get_iterator_retry: RetryOptions = RetryOptions(
        "shard.getiterator", "GetShardIterator", retries=3, base=300, longest=1000
    )
    recoverable_errors: Derived[RecoverableErrors] = Derived(recoverable_errors)


class ShardOrder(Enum):
    """Whether a child shard waits for its parents."""

    PARENTS_FIRST = "parents-first"
    NONE = "none"


class DiscoveryConfig(Section, section="Discovery"):
    """How shards are found, and in which order they are read."""

    interval_seconds: Option[float] = Option(
        key="shard.discovery.intervalmillis",
        parser=Duration(),
        default=10_000.0,
        doc="The period in which ListShards looks for new shards.",
    )
    describe_retry: RetryOptions = RetryOptions(
        "stream.describe", "DescribeStreamSummary", retries=50, base=2000, longest=5000
    )
    list_shards_retry: RetryOptions = RetryOptions(
        "list.shards", "ListShards", retries=10, base=1000, longest=5000
    )
    shard_order: Option[ShardOrder] = Option(
        key="shard.order",
        parser=Choice(members=ShardOrder),
        default=ShardOrder.PARENTS_FIRST,
        namespace=Namespace.OURS,
        section="Source",
        doc="Whether a shard waits until all of its ancestors are read to their ends.",
    )

    @property
    def parents_first(self) -> bool:
        """Whether a child shard waits for its parents."""
        return self.shard_order is ShardOrder.PARENTS_FIRST
