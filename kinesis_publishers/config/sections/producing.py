"""How records are written: batches, aggregation, rates, and what happens on failures."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from kinesis_publishers.config.option import Derived, Lookup, Option, Section
from kinesis_publishers.config.parsers import (
    DecimalNumber,
    Duration,
    PluginName,
    Size,
    Text,
    WholeNumber,
)

if TYPE_CHECKING:
    from kinesis_publishers.retry import RetryPolicy

RANDOM: Final = "RANDOM"
_MIB: Final = 1024 * 1024


class Ordering(Enum):
    NONE = "none"
    KEY = "key"


class OuterKey(Enum):
    KPL = "kpl"
    FIRST = "first"


class WhenFull(Enum):
    WAIT = "wait"
    FAIL = "fail"


def _retry(lookup: Lookup) -> RetryPolicy:
    # It comes with asyncio, which a configuration alone does not need.
    from kinesis_publishers.retry import RetryPolicy

    # How often does not matter: a record's time to live decides.
    return RetryPolicy(
        max_retries=0,
        base_seconds=ProducerConfig.backoff_base_seconds.read(lookup),
        max_seconds=ProducerConfig.backoff_max_seconds.read(lookup),
        exponent=2.0,
    )


def _expiry(lookup: Lookup) -> float:
    # What may wait on disk may wait for as long as it takes.
    is_endless = lookup.get(ProducerConfig.spill_path) is not None
    return math.inf if is_endless else ProducerConfig.ttl_seconds.read(lookup)


class ProducerConfig(Section, section="Producer"):
    """How records are written."""

    linger_seconds: Option[float] = Option(
        key="producer.lingermillis",
        default=100.0,
        spellings=("producer.recordmaxbufferedtime",),
        doc="How long a record waits for others to share a call or an aggregate with.",
    )
    ttl_seconds: Option[float] = Option(
        key="producer.recordttlmillis",
        parser=Duration(minimum=1.0),
        default=300_000.0,
        spellings=("producer.recordttl",),
        doc="How long a record is retried while the service refuses it or cannot be reached. "
        "After that its future has the error.",
    )
    expiry_seconds: Derived[float] = Derived(_expiry)
    max_records: Option[int] = Option(
        key="producer.buffer.maxrecords",
        default=50_000,
        doc="How many records the buffer may hold, including those being sent.",
    )
    max_bytes: Option[int] = Option(
        key="producer.buffer.maxbytes",
        parser=Size(),
        default=64 * _MIB,
        doc="How many bytes the buffer may hold, including partition keys.",
    )
    when_full: Option[WhenFull] = Option(
        key="producer.buffer.whenfull",
        default=WhenFull.WAIT,
        doc="What happens when the buffer is full: a record waits for room (wait), or its future "
        "fails immediately (fail).",
    )
    spill_path: Option[str | None] = Option(
        key="producer.spill.path",
        parser=Text(accepts="the path of a directory"),
        guarded="",
        doc="The directory that takes records while the service is away and the buffer is full. "
        "Each producer has its own. With one, records do not expire. There is none by default.",
    )
    spill_bytes: Option[int] = Option(
        key="producer.spill.maxbytes",
        parser=Size(),
        default=1024 * _MIB,
        doc="How many bytes of records, with their partition keys, that directory may have. Its "
        "file is a little larger. Each record on disk also takes 0.2 to 2 KB of memory.",
    )
    ordering: Option[Ordering] = Option(
        key="producer.ordering",
        default=Ordering.NONE,
        doc="With key, the records of a partition key are written in the order in which they are "
        "put: the next one waits until the previous one is acknowledged, but an aggregate carries "
        "many at once. With none, a retried record may be written after later ones.",
    )
    batch_records: Option[int] = Option(
        key="producer.batch.maxrecords",
        parser=WholeNumber(minimum=1, maximum=500),
        default=500,
        spellings=("producer.collectionmaxcount",),
        doc="The largest number of entries in a PutRecords call. An aggregate is one entry.",
    )
    batch_bytes: Option[int] = Option(
        key="producer.batch.maxbytes",
        parser=Size(maximum=10 * _MIB),
        default=5 * _MIB,
        spellings=("producer.collectionmaxsize",),
        doc="The largest size of a PutRecords call. A larger record is sent alone.",
    )
    max_in_flight: Option[int] = Option(
        key="producer.maxinflight",
        default=24,
        spellings=("producer.maxconnections",),
        doc="How many PutRecords calls may be in flight at once.",
    )
    request_timeout_seconds: Option[float] = Option(
        key="producer.requesttimeoutmillis",
        parser=Duration(minimum=1.0),
        default=10_000.0,
        spellings=("producer.requesttimeout",),
        doc="How long a PutRecords call may take. After that it is retried, and its records may "
        "be in the stream twice.",
    )
    aggregates: Option[bool] = Option(
        key="producer.aggregation",
        default=False,
        spellings=("producer.aggregationenabled",),
        doc="Whether records for one shard are packed into aggregates in the KPL's format, which "
        "every reader of the stream has to deaggregate.",
    )
    aggregate_bytes: Option[int] = Option(
        key="producer.aggregation.maxbytes",
        parser=Size(minimum=64, maximum=10 * _MIB),
        default=51_200,
        spellings=("producer.aggregationmaxsize",),
        doc="The largest size of an aggregate. A larger record is not aggregated.",
    )
    aggregate_records: Option[int] = Option(
        key="producer.aggregation.maxrecords",
        default=2**32 - 1,
        spellings=("producer.aggregationmaxcount",),
        doc="The largest number of records in an aggregate.",
    )
    outer_key: Option[OuterKey] = Option(
        key="producer.aggregation.outerkey",
        default=OuterKey.KPL,
        doc="The partition key of an aggregate: the KPL's, which is a (kpl), or that of its first "
        "record (first), for consumers that distribute or order records by it. Readers need "
        "kinesis.aggregation = kpl with first.",
    )
    rate_percent: ClassVar[Option[float]] = Option(
        key="producer.ratelimit",
        parser=DecimalNumber(minimum=1),
        default=100.0,
        doc="The maximum rate at which a shard is written, in percent of its limits (1 MiB and "
        "1,000 records a second). The KPL's default is 150.",
    )
    rate: Derived[float] = Derived(lambda lookup: lookup.get(ProducerConfig.rate_percent) / 100)
    adapts_rate: Option[bool] = Option(
        key="producer.ratelimit.adaptive",
        default=True,
        doc="Whether the rate adapts to throttling: it falls to as little as 5 % for a shard that "
        "throttles, and then rises step by step, so that several producers can share a "
        "stream.",
    )
    fails_on_error: Option[bool] = Option(
        key="producer.failonerror",
        default=False,
        spellings=("producer.failifthrottled",),
        doc="Whether the first refusal or failure of a record is final.",
    )
    backoff_base_seconds: ClassVar[Option[float]] = Option(
        key="producer.backoff.base",
        default=100.0,
        doc="The upper bound of the first delay before a refused record is retried. It doubles "
        "with each attempt.",
    )
    backoff_max_seconds: ClassVar[Option[float]] = Option(
        key="producer.backoff.max",
        default=5_000.0,
        doc="The longest delay before a refused record is retried.",
    )
    retry: Derived[RetryPolicy] = Derived(_retry)
    partitioner: Option[str] = Option(
        key="producer.partitioner",
        parser=PluginName(
            built_in={RANDOM: "kinesis_publishers.producing.routing:RandomPartitioner"},
            group="kinesis_publishers.partitioners",
        ),
        default=RANDOM,
        guarded=":",
        doc="What chooses the keys that records lack: RANDOM, or a Partitioner of your own.",
    )
