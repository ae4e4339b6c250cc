"""Events of writing records."""

from __future__ import annotations

from logging import DEBUG, WARNING

from attrs import frozen

from kinesis_publishers.events.event import Event, ShardEvent
from kinesis_publishers.model import ShardKey


@frozen(kw_only=True)
class ProducerStarted(Event):
    """A producer has found its stream.

    Attributes:
        shards: how many open shards the stream has.
    """

    says = "A producer to stream {stream} started with {shards:# open shards}."
    stream_arn: str
    shards: int


@frozen(kw_only=True)
class ProducerStopped(Event):
    """A producer was closed.

    Attributes:
        records: how many records had not been written.
    """

    says = "A producer to stream {stream} stopped with {records:# unwritten records}."
    stream_arn: str
    records: int


@frozen(kw_only=True)
class RecordsPut(ShardEvent, level=DEBUG):
    """A shard has accepted records of a PutRecords call.

    Attributes:
        entries: how many records the shard counts; an aggregate is one.
        records: how many records were put for them.
        payload_bytes: the data of these.
        entry_bytes: what the shard counts.
        attempts: how many calls they were in, all together.
        buffering_seconds: how long the oldest had waited when the call was made.
        seconds: how long the oldest took from ``put`` to here.
    """

    says = (
        "Shard {shard} accepted {records:# records} in {entries:# entries}, after {seconds:.3f} s."
    )
    entries: int
    records: int
    payload_bytes: int
    entry_bytes: int
    attempts: int
    buffering_seconds: float
    seconds: float


@frozen(kw_only=True)
class RecordsRefused(ShardEvent, level=DEBUG):
    """A shard has not accepted records of a PutRecords call that succeeded.

    Attributes:
        code: the service's error code.
        entries: how many it counts.
    """

    says = "Shard {shard} refused {entries:# entries}: {code}."
    code: str
    entries: int


@frozen(kw_only=True)
class PutRecordsAnswered(Event, level=DEBUG):
    """A PutRecords call was answered, or has failed.

    Attributes:
        code: why it has failed; empty if it has succeeded, be it with refused entries.
        pending_records: how many records are in the buffer now, these included.
    """

    says = (
        "PutRecords to stream {stream} took {seconds:.3f} s for {entries:# entries}"
        "{code:, and failed with #}."
    )
    stream_arn: str
    entries: int
    records: int
    seconds: float
    pending_records: int
    pending_bytes: int
    code: str = ""


@frozen(kw_only=True)
class RecordsFailed(Event, level=WARNING):
    """Records were given up: their futures have the error.

    Attributes:
        shard: where they would have gone.
        code: the service's error code, or the name of the exception.
    """

    says = "The producer gave up {records:# records} for shard {shard}: {code}."
    shard: ShardKey
    code: str
    records: int


@frozen(kw_only=True)
class ShardMispredicted(Event):
    """Records have gone to another shard than the producer knew of: the stream was resharded.

    Attributes:
        shard: the one that was expected.
        shard_id: the one where they are.
        records: how many.
        resent: how many of them are sent again, because readers of that shard leave them out.
    """

    says = (
        "Shard {shard_id} received {records:# records} expected in {shard}. The producer sends "
        "{resent} of them again."
    )
    shard: ShardKey
    shard_id: str
    records: int
    resent: int
