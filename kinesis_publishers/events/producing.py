"""Events of writing records."""

from __future__ import annotations

from logging import DEBUG, WARNING

from kinesis_publishers.events.event import OwnEvent, ShardEvent


class ProducerStarted(OwnEvent):
    """A producer has found its stream."""

    says = "A producer to stream {stream} started with {shards:# open shards}."
    stream_arn: str
    shards: int


class ProducerStopped(OwnEvent):
    """A producer was closed; ``records`` had not been written."""

    says = "A producer to stream {stream} stopped with {records:# unwritten records}."
    stream_arn: str
    records: int


class RecordsPut(ShardEvent, level=DEBUG):
    """A shard has accepted records of a PutRecords call.

    Attributes:
        entries, entry_bytes: what the shard counts; an aggregate is one entry.
        records, payload_bytes: what the caller put.
        attempts: the sum of the calls that each record was in.
        buffering_seconds: how long the oldest record waited for the call.
        seconds: the time from ``put`` to the answer, for the oldest record.
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


class RecordsRefused(ShardEvent, level=DEBUG):
    """A shard has not accepted records of a PutRecords call that succeeded."""

    says = "Shard {shard} refused {entries:# entries}: {code}."
    code: str
    entries: int


class PutRecordsAnswered(OwnEvent, level=DEBUG):
    """A PutRecords call was answered, or failed with ``code``; an answer may refuse entries.

    The buffer has the pending records and bytes, those of this call included; the records on disk
    are pending, too.
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


class RecordsFailed(ShardEvent, level=WARNING):
    """The producer gave up records for ``shard``: their futures have the error.

    ``code`` is the service's error code, or the name of the exception.
    """

    says = "The producer gave up {records:# records} for shard {shard}: {code}."
    code: str
    records: int


class SpoolFound(OwnEvent, level=WARNING):
    """A producer puts the records first that an earlier process has left on disk.

    That process ended before it knew whether ``unknown`` of them were written: they may be in the
    stream twice.
    """

    says = (
        "The producer to stream {stream} puts {records:# records} from disk, of which {unknown} "
        "may have been written before."
    )
    stream_arn: str
    records: int
    unknown: int


class ShardMispredicted(ShardEvent):
    """Records expected in ``shard`` went to ``shard_id``: the stream was resharded.

    ``resent`` of them are sent again, because readers of that shard leave them out.
    """

    says = (
        "Shard {shard_id} received {records:# records} expected in {shard}. The producer sends "
        "{resent} of them again."
    )
    shard_id: str
    records: int
    resent: int
