"""Events of calls that did not succeed, of stream consumers, and of the pool of pending records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from kinesis_publishers.model import ShardKey

__all__ = [
    "Throttled",
    "CallRetried",
    "ConsumerRegistered",
    "ConsumerAwaited",
    "ConsumerDeregistered",
    "BackpressureBegan",
    "BackpressureEnded",
    "PoolUsed",
]


@frozen(kw_only=True)
class Throttled:
    """AWS refused a call because a rate is used up; it is repeated after a delay."""

    shard: ShardKey
    operation: str


@frozen(kw_only=True)
class CallRetried:
    """A call failed, throttles included, and is going to be made again.

    Attributes:
        operation: the operation of the service.
        code: the service's error code, or the name of the exception.
        attempt: which repetition it is, counted from 1 since the operation last succeeded.
        delay_seconds: how long is waited before it.
        message: what went wrong.
        shard: which shard the call is about, if it is about one.
    """

    operation: str
    code: str
    attempt: int
    delay_seconds: float
    message: str
    shard: ShardKey | None = None


@frozen(kw_only=True)
class ConsumerRegistered:
    """A stream consumer was registered by this process."""

    stream_arn: str
    consumer_arn: str


@frozen(kw_only=True)
class ConsumerAwaited:
    """A stream consumer cannot be used yet, because it is CREATING or DELETING: that is waited out.

    Reported once for each status.
    """

    stream_arn: str
    consumer_arn: str
    status: str


@frozen(kw_only=True)
class ConsumerDeregistered:
    """A stream consumer that this application had registered was removed."""

    consumer_arn: str


@frozen(kw_only=True)
class BackpressureBegan:
    """The pending pool has no room for what a shard would read next: the application is behind.

    Attributes:
        shard: who waits.
        records: room for how many records is waited for.
        payload_bytes: room for how many bytes is waited for.
    """

    shard: ShardKey
    records: int
    payload_bytes: int


@frozen(kw_only=True)
class BackpressureEnded:
    """A shard does not wait for room any longer: it has got it, or has stopped waiting.

    Attributes:
        shard: who waited.
        seconds: how long.
    """

    shard: ShardKey
    seconds: float


@frozen(kw_only=True)
class PoolUsed:
    """The content of the pending pool has changed by a delivery or a release.

    Attributes:
        records: records in the pool, with those that room is reserved for.
        payload_bytes: their bytes.
        max_records: the limit in records.
        max_bytes: the limit in bytes.
        waiters: how many shards wait for room.
    """

    records: int
    payload_bytes: int
    max_records: int
    max_bytes: int
    waiters: int
