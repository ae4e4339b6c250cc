"""Events of the pool of pending records, of calls that failed, of stream consumers, and of loss."""

from __future__ import annotations

from datetime import datetime
from logging import DEBUG, ERROR

from attrs import frozen

from kinesis_publishers.events.event import Event, ShardEvent
from kinesis_publishers.model import SequenceNumber, ShardKey, StartingPosition


@frozen(kw_only=True)
class BackpressureBegan(ShardEvent, level=DEBUG):
    """The pending pool has no room for what a shard would read next: the application is behind."""

    says = "Shard {shard} waits for room for {records:# records}."
    records: int
    payload_bytes: int


@frozen(kw_only=True)
class BackpressureEnded(ShardEvent, level=DEBUG):
    """A shard no longer waits for room: it has received it, or has stopped waiting."""

    says = "Shard {shard} waited {seconds:.1f} s for room."
    seconds: float


@frozen(kw_only=True)
class PoolUsed(Event, level=DEBUG):
    """A delivery or a release has changed the content of the pending pool.

    Attributes:
        records: how many records it holds or has reserved room for.
        waiters: how many shards wait for room.
    """

    says = (
        "The pool holds {records:# records} and {payload_bytes:# bytes}; the limits are "
        "{max_records} and {max_bytes}."
    )
    records: int
    payload_bytes: int
    max_records: int
    max_bytes: int
    waiters: int


@frozen(kw_only=True)
class Throttled(ShardEvent, level=DEBUG):
    """AWS refused a call because a rate is used up; it is repeated after a delay."""

    says = "Shard {shard} throttled {operation}."
    operation: str


# kinesis_publishers.retry warns about what keeps failing.
@frozen(kw_only=True)
class CallRetried(Event, level=DEBUG):
    """A call failed or was throttled, and will be made again.

    Attributes:
        code: the service's error code, or the name of the exception.
        attempt: the number of the repetition, from 1, since the operation last succeeded.
        delay_seconds: the delay before it.
        shard: which shard the call is about, if it is about one.
    """

    says = (
        "{operation}{shard: of shard #} failed ({code}); retry {attempt} follows in "
        "{delay_seconds:.1f} s. {message:#}."
    )
    operation: str
    code: str
    attempt: int
    delay_seconds: float
    message: str
    shard: ShardKey | None = None


@frozen(kw_only=True)
class ConsumerRegistered(Event):
    """A stream consumer was registered by this process."""

    says = "Stream {stream} has a new consumer: {consumer_arn}."
    stream_arn: str
    consumer_arn: str


@frozen(kw_only=True)
class ConsumerAwaited(Event):
    """A stream consumer cannot be used while it is CREATING or DELETING: the reader waits.

    Reported once for each status.
    """

    says = "The reader of stream {stream} waits: {consumer_arn} is {status}."
    stream_arn: str
    consumer_arn: str
    status: str


@frozen(kw_only=True)
class ConsumerDeregistered(Event):
    """A stream consumer that this application had registered was removed."""

    says = "The stream consumer {consumer_arn} was removed."
    consumer_arn: str


@frozen(kw_only=True)
class DataLossTolerated(ShardEvent, level=ERROR):
    """Records may be missing, and the configuration says to continue.

    Their number is unknown: sequence numbers have gaps.

    Attributes:
        shard: where they are missing; the id ``*`` stands for the whole stream.
        message: what is missing, in words.
        position: where reading would have continued: the missing records follow it.
        since: everything that arrived earlier has been read, if that is known.
        until: the missing records arrived before this instant, if that is known.
        next_record: the record that reading continues with, if that is known.
    """

    says = "{message:#}."
    message: str
    position: StartingPosition | None = None
    since: datetime | None = None
    until: datetime | None = None
    next_record: SequenceNumber | None = None
