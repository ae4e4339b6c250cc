"""Events of calls that failed, of stream consumers, and of the pool of pending records."""

from __future__ import annotations

from attrs import frozen

from kinesis_publishers.model import ShardKey


@frozen(kw_only=True)
class Throttled:
    """AWS refused a call because a rate is used up; it is repeated after a delay."""

    shard: ShardKey
    operation: str


@frozen(kw_only=True)
class CallRetried:
    """A call failed or was throttled, and will be made again.

    Attributes:
        code: the service's error code, or the name of the exception.
        attempt: the number of the repetition, from 1, since the operation last succeeded.
        delay_seconds: the delay before it.
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
    """A stream consumer cannot be used while it is CREATING or DELETING: the reader waits.

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
    """The pending pool has no room for what a shard would read next: the application is behind."""

    shard: ShardKey
    records: int
    payload_bytes: int


@frozen(kw_only=True)
class BackpressureEnded:
    """A shard no longer waits for room: it has received it, or has stopped waiting."""

    shard: ShardKey
    seconds: float


@frozen(kw_only=True)
class PoolUsed:
    """A delivery or a release has changed the content of the pending pool.

    Attributes:
        records: how many records it holds or has reserved room for.
        waiters: how many shards wait for room.
    """

    records: int
    payload_bytes: int
    max_records: int
    max_bytes: int
    waiters: int
