"""The options by which every call to AWS is repeated: four by prefix, and one for all of them.

``delay = random[0, 1) * min(max, base * expconst ** attempt)``.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from kinesis_publishers.config.option import Namespace, Option
from kinesis_publishers.config.parsers import DecimalNumber, Duration, WholeNumber

_SECTION = "Retries"


@frozen(kw_only=True)
class RetryOptions:
    """The retry options of one operation."""

    max_retries: Option[int]
    base: Option[float]
    max: Option[float]
    exponent: Option[float]

    def as_tuple(self) -> tuple[Option[int], Option[float], Option[float], Option[float]]:
        """Return the four, in the order of the reference."""
        return (self.max_retries, self.base, self.max, self.exponent)


def declare_retries(
    prefix: str,
    operation: str,
    defaults: tuple[int, float, float, float],
    *,
    namespace: Namespace = Namespace.SHARED,
) -> RetryOptions:
    """Declare the retry options of ``operation`` under ``prefix``.

    Args:
        prefix: the key before ``.maxretries``.
        operation: the API operation, for the reference.
        defaults: number of retries, base and maximum of the delay in ms, growth per attempt.
        namespace: the prefixes under which the options are accepted.
    """
    max_retries, base, maximum, exponent = defaults

    def duration(name: str, default: float, doc: str) -> Option[float]:
        return Option(
            key=f"{prefix}.backoff.{name}",
            parser=Duration(),
            default=default,
            namespace=namespace,
            section=_SECTION,
            doc=doc,
        )

    return RetryOptions(
        max_retries=Option(
            key=f"{prefix}.maxretries",
            parser=WholeNumber(),
            default=max_retries,
            namespace=namespace,
            section=_SECTION,
            doc=f"How often {operation} is repeated before it counts as failed. If it is set and "
            "kinesis.retry.outagemillis is not, it is the only limit.",
        ),
        base=duration("base", base, f"The bound of the first delay between {operation} calls."),
        max=duration("max", maximum, f"The longest delay between {operation} calls."),
        exponent=Option(
            key=f"{prefix}.backoff.expconst",
            parser=DecimalNumber(),
            default=exponent,
            namespace=namespace,
            section=_SECTION,
            doc=f"The growth of the delay between {operation} calls with each attempt.",
        ),
    )


OUTAGE: Final = Option(
    key="retry.outagemillis",
    parser=Duration(),
    default=300_000.0,
    namespace=Namespace.OURS,
    section=_SECTION,
    doc="How long every call is repeated, even when its maxretries are used up. If it is not set, "
    "a service that has never answered is given up after 30 seconds. 0 leaves the maxretries "
    "alone, as in Flink.",
)
DESCRIBE_STREAM: Final = declare_retries(
    "stream.describe", "DescribeStreamSummary", (50, 2000.0, 5000.0, 1.5)
)
LIST_SHARDS: Final = declare_retries("list.shards", "ListShards", (10, 1000.0, 5000.0, 1.5))
GET_RECORDS: Final = declare_retries("shard.getrecords", "GetRecords", (3, 300.0, 1000.0, 1.5))
GET_ITERATOR: Final = declare_retries(
    "shard.getiterator", "GetShardIterator", (3, 300.0, 1000.0, 1.5)
)
DESCRIBE_CONSUMER: Final = declare_retries(
    "stream.describestreamconsumer",
    "DescribeStreamConsumer",
    (50, 2000.0, 5000.0, 1.5),
)
LIST_CONSUMERS: Final = declare_retries(
    "stream.liststreamconsumers",
    "ListStreamConsumers",
    (10, 200.0, 1000.0, 1.5),
)
REGISTER_CONSUMER: Final = declare_retries(
    "stream.registerstreamconsumer",
    "RegisterStreamConsumer",
    (10, 500.0, 2000.0, 1.5),
)
DEREGISTER_CONSUMER: Final = declare_retries(
    "stream.deregisterstreamconsumer",
    "DeregisterStreamConsumer",
    (10, 500.0, 2000.0, 1.5),
)
SUBSCRIBE_TO_SHARD: Final = declare_retries(
    "shard.subscribetoshard",
    "SubscribeToShard",
    (10, 1000.0, 2000.0, 1.5),
)

RETRIES: Final = (
    DESCRIBE_STREAM,
    LIST_SHARDS,
    GET_RECORDS,
    GET_ITERATOR,
    DESCRIBE_CONSUMER,
    LIST_CONSUMERS,
    REGISTER_CONSUMER,
    DEREGISTER_CONSUMER,
    SUBSCRIBE_TO_SHARD,
)
OPTIONS: Final = (OUTAGE, *(option for retries in RETRIES for option in retries.as_tuple()))
