"""How shards are found and read, what may wait, and how far shards may be apart in event time."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kinesis_publishers.config.option import Derived, Option, Section
from kinesis_publishers.config.parsers import Duration, PluginName, Size, WholeNumber
from kinesis_publishers.config.retries import RecoverableErrors, RetryOptions


class Encoding(Enum):
    AUTO = "auto"
    CBOR = "cbor"
    JSON = "json"


class ShardLimits(Enum):
    AWS = "aws"
    OFF = "off"


class PollingConfig(Section, section="Polling"):
    """How a shard is polled with GetRecords."""

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
        doc="The polling period of a shard at its tip, processing included; without records, up "
        "to a second. Behind the tip, a shard is polled again immediately.",
    )
    limits: Option[ShardLimits] = Option(
        key="shard.limits",
        default=ShardLimits.AWS,
        doc="The limits on polling a shard: aws (five calls and 2 MB a second), or off for a "
        "server without limits. With off, only the polling period applies.",
    )
    adaptive_reads: Option[bool] = Option(
        key="shard.adaptivereads",
        default=False,
        doc="Whether the Limit adapts to the size of records, to keep a shard within its 2 MiB/s.",
    )
    encoding: Option[Encoding] = Option(
        key="shard.getrecords.encoding",
        default=Encoding.AUTO,
        doc="The encoding of GetRecords, GetShardIterator and PutRecords. cbor takes a quarter "
        "fewer bytes than json. auto is CBOR, but JSON for streams with records below 1 kB, "
        "where it takes less CPU, and for services that do not understand CBOR.",
    )
    get_records_retry: RetryOptions = RetryOptions(
        "shard.getrecords", "GetRecords", retries=3, delays=(300, 1000)
    )
    get_iterator_retry: RetryOptions = RetryOptions(
        "shard.getiterator", "GetShardIterator", retries=3, delays=(300, 1000)
    )
    recoverable_errors: Derived[RecoverableErrors] = Derived(RecoverableErrors.read)


class ShardOrder(Enum):
    PARENTS_FIRST = "parents-first"
    NONE = "none"


class DiscoveryConfig(Section, section="Discovery"):
    """How shards are found, and in which order they are read."""

    interval_seconds: Option[float] = Option(
        key="shard.discovery.intervalmillis",
        default=10_000.0,
        doc="How often ListShards looks for new shards.",
    )
    describe_retry: RetryOptions = RetryOptions(
        "stream.describe", "DescribeStreamSummary", retries=50, delays=(2000, 5000)
    )
    list_shards_retry: RetryOptions = RetryOptions(
        "list.shards", "ListShards", retries=10, delays=(1000, 5000)
    )
    shard_order: Option[ShardOrder] = Option(
        key="shard.order",
        default=ShardOrder.PARENTS_FIRST,
        section="Source",
        doc="Whether a shard waits until all of its ancestors are read to their ends.",
    )

    @property
    def parents_first(self) -> bool:
        return self.shard_order is ShardOrder.PARENTS_FIRST


class FanOutConfig(Section, section="Enhanced fan-out"):
    """How a shard is read by subscriptions."""

    subscribe_retry: RetryOptions = RetryOptions(
        "shard.subscribetoshard", "SubscribeToShard", retries=10, delays=(1000, 2000)
    )
    subscribe_timeout_seconds: Option[float] = Option(
        key="shard.subscribetoshard.timeout",
        parser=Duration(unit="s", minimum=1.0),
        default=60.0,
        doc="How long SubscribeToShard may take to answer.",
    )
    space_timeout_seconds: Option[float] = Option(
        key="pending.waittimeoutmillis",
        default=30_000.0,
        section="Backpressure",
        doc="How long a subscription may wait for room in the pool, or for one delivery to end, "
        "before it is closed.",
    )
    recoverable_errors: Derived[RecoverableErrors] = Derived(RecoverableErrors.read)


class HttpVersion(Enum):
    AUTO = "auto"
    HTTP_2 = "2"
    HTTP_1_1 = "1.1"


class SubscriptionHttpConfig(Section, section="Enhanced fan-out"):
    """How subscriptions are carried."""

    version: Option[HttpVersion] = Option(
        key="stream.efo.http-version",
        default=HttpVersion.AUTO,
        doc="The protocol of subscriptions: 2, 1.1, or auto (2 where an https endpoint offers it, "
        "as AWS does, and 1.1 otherwise).",
    )
    read_timeout_seconds: Option[float] = Option(
        key="stream.efo.http-client.read-timeout",
        parser=Duration(minimum=1.0),
        default=360_000.0,
        doc="The socket read timeout of a subscription.",
    )


class ProcessingConfig(Section, section="Processing"):
    """What is expected of the application."""

    slow_after: Option[float] = Option(
        key="processing.slow-after",
        parser=Duration(unit="s"),
        default=60.0,
        doc="How long a callback, or the body of a loop, may run before it is reported with its "
        "shard and record. 0 disables the report.",
    )


class PendingConfig(Section, section="Backpressure"):
    """How much may be read and not yet handed on, over all shards."""

    max_records: Option[int] = Option(
        key="pending.maxrecords",
        default=200_000,
        doc="How many records of all shards may wait in memory.",
    )
    max_bytes: Option[int] = Option(
        key="pending.maxbytes",
        parser=Size(),
        default=64 * 1024**2,
        doc="How many bytes of all shards may wait in memory.",
    )


ARRIVAL: Final = "ARRIVAL"
"""The default assigner."""


class WatermarkConfig(Section, section="Watermarks"):
    """Where event times come from, and how far apart shards may be."""

    assigner: Option[str] = Option(
        key="watermark.assigner",
        parser=PluginName(
            built_in={ARRIVAL: "kinesis_publishers.engine.watermarks:ArrivalTime"},
            group="kinesis_publishers.watermark_assigners",
        ),
        default=ARRIVAL,
        guarded=":",
        doc="Where event times come from: arrival (ARRIVAL), or a WatermarkAssigner of your own.",
    )
    disorder_seconds: Option[float] = Option(
        key="watermark.disordermillis",
        default=0.0,
        doc="How far out of order event times may be within a shard: the distance of the "
        "watermark from the latest event time.",
    )
    idle_interval_seconds: Option[float] = Option(
        key="shard.idle.interval",
        parser=Duration(can_be_off=True),
        default=-1.0,
        doc="After this long without a record, a shard at its tip is idle and no longer holds back "
        "the watermark.",
    )
    sync_interval_seconds: Option[float] = Option(
        key="watermark.sync.interval",
        default=30_000.0,
        doc="How often workers with leases publish the watermarks of their shards. A shard that "
        "receives records publishes its watermark sooner, with each checkpoint.",
    )
    lookahead_seconds: Option[float] = Option(
        key="watermark.lookahead.millis",
        default=0.0,
        doc="How far a shard may be ahead of the others in event time. With 0, no shard waits. "
        "With leases, set it to at least twice watermark.sync.interval and at least "
        "lease.failovermillis: with less, workers alternate between reading and waiting.",
    )
    queue_capacity: Option[int] = Option(
        key="watermark.sync.queue.capacity",
        default=100,
        doc="With watermark.lookahead.millis, reading a shard pauses while this many of its "
        "records wait for the application.",
    )
