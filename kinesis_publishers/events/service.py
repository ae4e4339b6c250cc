"""Events of the pending pool, failed calls, stream consumers, checkpoints, leases, and loss."""

from __future__ import annotations

from datetime import datetime
from logging import DEBUG, ERROR, WARNING

from kinesis_publishers.events.event import OwnEvent, ShardEvent
from kinesis_publishers.model import SequenceNumber, ShardKey, StartingPosition


class BackpressureBegan(ShardEvent, level=DEBUG):
    """The pending pool has no room for what a shard reads next: the application is behind."""

    says = "Shard {shard} waits for room for {records:# records}."
    records: int
    payload_bytes: int


class BackpressureEnded(ShardEvent, level=DEBUG):
    """A shard no longer waits for room: it has received it, or has stopped waiting."""

    says = "Shard {shard} waited {seconds:.1f} s for room."
    seconds: float


class PoolUsed(OwnEvent, level=DEBUG):
    """A delivery or a release has changed the content of the pending pool.

    Reserved room counts as used. The ``waiters`` are shards.
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


class Throttled(ShardEvent, level=DEBUG):
    """AWS refused a call because a rate is used up; it is repeated after a delay."""

    says = "Shard {shard} throttled {operation}."
    operation: str


# kinesis_publishers.retry warns about what keeps failing.
class CallRetried(OwnEvent, level=DEBUG):
    """A call failed or was throttled, and will be made again after the delay.

    ``code`` is the service's error code, or the name of the exception. ``attempt`` is the number of
    the repetition, from 1, since the operation last succeeded.
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


class ConsumerRegistered(OwnEvent):
    """A stream consumer was registered by this process."""

    says = "Stream {stream} has a new consumer: {consumer_arn}."
    stream_arn: str
    consumer_arn: str


class ConsumerAwaited(OwnEvent):
    """A stream consumer cannot be used while it is CREATING or DELETING: the reader waits.

    Reported once for each status.
    """

    says = "The reader of stream {stream} waits: {consumer_arn} is {status}."
    stream_arn: str
    consumer_arn: str
    status: str


class ConsumerDeregistered(OwnEvent):
    """A stream consumer that this application had registered was removed."""

    says = "The stream consumer {consumer_arn} was removed."
    consumer_arn: str


class CheckpointsSaved(OwnEvent, level=DEBUG):
    """The checkpoint store has written how far shards are processed, or where they begin."""

    says = "The checkpoint store saved {shards:# shards} in {seconds:.3f} s."
    shards: int
    seconds: float


class CheckpointsRefused(OwnEvent, level=WARNING):
    """The checkpoint store has refused a write: another reader has written in the meantime."""

    says = "{message:#}."
    message: str


class LeaseTaken(ShardEvent):
    """This worker has taken the lease on a shard, and reads it."""

    says = "This worker took the lease on shard {shard}."


class LeaseReleased(ShardEvent):
    """This worker has released a lease, after it finished the records that it had handed out.

    ``owner`` is the worker that asked for it; ``None`` if anybody may take it.
    """

    says = "This worker released the lease on shard {shard}{owner: to #}."
    owner: str | None


class LeaseLost(ShardEvent, level=WARNING):
    """Another worker, the ``owner``, has taken a lease from this one, or the row was removed.

    A row is removed with its checkpoint. Records may be repeated.
    """

    says = "This worker lost the lease on shard {shard}{owner: to #}; records may be repeated."
    owner: str | None
    is_removed: bool = False


class LeasesCounted(OwnEvent, level=DEBUG):
    """``worker`` has looked at the leases of the application, on shards that have not ended.

    ``current`` are its own, and ``spilled`` the free ones that are more than it may take.
    ``workers`` are those that hold leases, and this one.
    """

    says = "Worker {worker} holds {current} of {total:# leases}; {free} are free."
    worker: str
    current: int
    total: int
    workers: int
    free: int
    spilled: int


class DataLossTolerated(ShardEvent, level=ERROR):
    """Records may be missing, and the configuration says to continue.

    Their number is unknown: sequence numbers have gaps. The other fields are ``None`` where they
    are not known.

    Attributes:
        shard: where they are missing; the id ``*`` stands for the whole stream.
        position: where reading would have continued: the missing records follow it.
        since: everything that arrived earlier has been read.
        until: the missing records arrived before this instant.
        next_record: the record that reading continues with.
    """

    says = "{message:#}."
    message: str
    position: StartingPosition | None = None
    since: datetime | None = None
    until: datetime | None = None
    next_record: SequenceNumber | None = None
