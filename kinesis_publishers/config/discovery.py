"""The typed view of the options of shard discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.config.choices import ShardOrder
from kinesis_publishers.config.options import discovery, publisher, retries

if TYPE_CHECKING:
    from kinesis_publishers.config.properties import Properties
    from kinesis_publishers.retry import RetryPolicy

__all__ = ["DiscoveryConfig"]


@frozen(kw_only=True)
class DiscoveryConfig:
    """How shards are found.

    Attributes:
        interval_seconds: the period of ListShards; 0 lists without a pause.
        list_shards_retry: how ListShards is repeated.
        describe_retry: how DescribeStreamSummary is repeated.
        parents_first: whether a child shard waits for its parents.
    """

    interval_seconds: float
    list_shards_retry: RetryPolicy
    describe_retry: RetryPolicy
    parents_first: bool

    @classmethod
    def from_properties(cls, properties: Properties) -> DiscoveryConfig:
        """Read the options of discovery."""
        return cls(
            interval_seconds=properties.seconds(discovery.DISCOVERY_INTERVAL),
            list_shards_retry=properties.retry_policy(retries.LIST_SHARDS),
            describe_retry=properties.retry_policy(retries.DESCRIBE_STREAM),
            parents_first=properties.get(publisher.SHARD_ORDER) is ShardOrder.PARENTS_FIRST,
        )
