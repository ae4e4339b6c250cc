"""Events of reading: fetchers, streams, shards, records, their processing, and Spark's queries."""

from __future__ import annotations

from datetime import datetime
from logging import DEBUG, WARNING

from kinesis_publishers.events.event import OwnEvent, ShardEvent
from kinesis_publishers.model import SequenceNumber, ShardKey, StartingPosition


class FetcherStarted(OwnEvent):
    """A fetcher of ``streams``, by name or ARN, began to run."""

    says = "A fetcher of {streams} started."
    streams: tuple[str, ...]


class FetcherStopped(OwnEvent):
    """A fetcher has stopped: by an ``error``, or because it was asked to."""

    says = "A fetcher of {streams} stopped after {seconds:.1f} s{error:: #}."
    streams: tuple[str, ...]
    seconds: float
    error: str | None


class StreamPrepared(OwnEvent):
    """A stream was found, and the position to read each of its shards from is fixed.

    ``shards`` includes those that have ended; ``is_resumed`` if an earlier reader has read it.
    """

    says = "Stream {stream} is ready with {shards:# shards}."
    stream_arn: str
    shards: int
    is_resumed: bool


class ShardsDiscovered(OwnEvent):
    """ListShards, or the last answer of a parent, listed new shards."""

    says = "Stream {stream} has new shards: {shard_ids}."
    stream_arn: str
    shard_ids: tuple[str, ...]


class ShardStarted(ShardEvent):
    """Reading of a shard began."""

    says = "Shard {shard} started at {position}."
    position: StartingPosition


class ShardEnded(ShardEvent):
    """A shard was read to its end, or has left the retention."""

    says = "Shard {shard} ended."


class ShardStopped(ShardEvent):
    """Reading of a shard stopped before its end, by an ``error`` or because it was asked to.

    A later reader continues at ``position``.
    """

    says = "Shard {shard} stopped at {position}{error:: #}."
    position: StartingPosition
    error: str | None


class ShardLeftBehind(ShardEvent, level=WARNING):
    """A shard made no progress for so long that the others stopped waiting for it.

    It is ``seconds`` behind the shard that is furthest; ``None`` if it was never read.
    """

    says = (
        "Shard {shard} cannot be read{seconds:, # s behind}: the other shards continue without it. "
        "Its records may come too late for windows of event time "
        "(kinesis.spark.alignment.patience)."
    )
    seconds: float | None


class RangeRead(ShardEvent):
    """An exact range of a shard was read and handed on.

    ``end`` is its last record, or the one after it; ``None`` if an instant or the shard ends it.
    """

    says = "Shard {shard} was read from {start}{end: to #} in {seconds:.1f} s."
    start: StartingPosition
    end: SequenceNumber | None
    seconds: float


class RecordsFetched(ShardEvent, level=DEBUG):
    """A GetRecords call was answered.

    Attributes:
        records: the number of stored records; an aggregate counts as one.
        millis_behind_latest: how far behind the tip of the shard the answer ends.
        limit: the maximum number of records that was requested.
        loop_seconds: from the start of the previous call, if there was one, to that of this one.
        sleep_seconds: the time slept since the previous answer, to keep the pace and to back off.
    """

    says = (
        "Shard {shard} returned {records:# records} in {call_seconds:.3f} "
        "s{millis_behind_latest:, # ms behind its tip}."
    )
    records: int
    payload_bytes: int
    millis_behind_latest: int | None
    limit: int
    loop_seconds: float | None
    sleep_seconds: float = 0.0
    call_seconds: float = 0.0


class IteratorReplaced(ShardEvent, level=DEBUG):
    """An expired shard iterator was replaced, from the stored position."""

    says = "Shard {shard} has a new iterator at {position}: the old one had expired."
    position: StartingPosition


class SubscriptionStarted(ShardEvent, level=DEBUG):
    """SubscribeToShard was accepted; ``is_reopened`` if it continues one that has ended."""

    says = "Shard {shard} accepted a subscription at {position}."
    position: StartingPosition
    consumer_arn: str
    is_reopened: bool = False


class SubscriptionEnded(ShardEvent, level=DEBUG):
    """A subscription is over; unless the shard has ended, another one follows."""

    says = "Shard {shard} ended a subscription after {seconds:.1f} s: {reason:#}."
    reason: str
    seconds: float


class EventReceived(ShardEvent, level=DEBUG):
    """A subscription delivered an event, which may have been a heartbeat without records."""

    says = "Shard {shard} sent {records:# records}{millis_behind_latest:, # ms behind its tip}."
    records: int
    payload_bytes: int
    millis_behind_latest: int | None


class RecordsSkipped(ShardEvent, level=DEBUG):
    """Records were dropped: they had been delivered before, or came twice in one answer."""

    says = "Shard {shard} returned {records:# records} that had been delivered before."
    records: int


class AggregatesExpanded(ShardEvent, level=DEBUG):
    """A delivery contained aggregates, or records that begin like one.

    Attributes:
        user_records: the records in the ``aggregates``.
        left_out: those not delivered because their hash keys belong to another shard: after a
            reshard the KPL puts them there again.
        foreign: those delivered although their hash keys belong to another shard.
        copies: those not delivered because, as their producer has noted, an earlier aggregate of
            the shard has them, too.
        corrupt: records that begin like an aggregate and are not valid; they are delivered as
            they are.
    """

    says = (
        "Shard {shard} held {user_records:# records} in {aggregates:# aggregates}; {left_out} "
        "were left out, {copies} were copies, {foreign} foreign, {corrupt} corrupt."
    )
    aggregates: int = 0
    user_records: int = 0
    left_out: int = 0
    corrupt: int = 0
    foreign: int = 0
    copies: int = 0


class RecordsProcessed(ShardEvent, level=DEBUG):
    """The application has taken a delivery: its records count as processed."""

    says = "The application processed {records:# records} of shard {shard} in {seconds:.3f} s."
    records: int
    payload_bytes: int
    seconds: float


# kinesis_publishers.engine.slow_calls warns about it in words.
class CallbackDelayed(OwnEvent, level=DEBUG):
    """A call of the application takes longer than it may, or has returned after that.

    It was called for a ``shard``, or for a watermark or a hook of ``read``, with this ``record``,
    the first of a batch. The next report comes after twice the ``seconds``.
    """

    shard: ShardKey | None
    callback: str
    record: SequenceNumber | None
    seconds: float
    has_returned: bool

    def __str__(self) -> str:
        waits = "its shard waits" if self.shard else "what comes next waits"
        did = "has returned after" if self.has_returned else "has not returned for"
        place = f"record {self.record} of {self.shard}" if self.record else self.shard
        return (
            f"{self.callback} {did} {self.seconds:.0f} s{'' if self.has_returned else f'; {waits}'}"
            f"{f' ({place})' if place else ''}."
        )


class LagMeasured(ShardEvent, level=DEBUG):
    """How far processing is behind, every five seconds while a shard is read.

    That is the age of the oldest record that is not processed, or of the last one read; 0 at the
    tip.
    """

    says = "Shard {shard} is processed with a lag of {seconds:.1f} s."
    seconds: float


class WatermarkMeasured(OwnEvent, level=DEBUG):
    """The watermark of a reader has advanced, or has not in five seconds.

    All records with earlier event times, within the disorder, have been processed.
    """

    says = "The watermark is {watermark}, {seconds:.1f} s ago."
    watermark: datetime
    seconds: float


class ProcessingFailed(ShardEvent, level=WARNING):
    """The application raised an error: the records of the delivery do not count as processed."""

    says = "The application failed on {records:# records} of shard {shard}: {error:#}."
    records: int
    error: str


class QueryProgressed(OwnEvent, level=DEBUG):
    """A query has reported what it has read of a source, or that nothing is new.

    ``query`` is its name or its id, here as in the events below. A source of several streams names
    none.
    """

    says = (
        "Query {query} read {rows:# rows}{stream: of stream #} and holds back "
        "{held_back_shards:# shards}."
    )
    query: str
    stream_arn: str | None
    rows: int
    held_back_shards: int


class QueryLagMeasured(ShardEvent, level=DEBUG):
    """How far a query is behind in one of the shards that are furthest behind.

    That is the age of the oldest record that is not committed, 0 without one; ``None`` when the
    shard is no longer reported.
    """

    says = "Query {query} reads shard {shard}{seconds: with a lag of # s}."
    query: str
    seconds: float | None
    millis_behind_latest: int | None


class RecordsLate(OwnEvent, level=WARNING):
    """A query has read records that arrived more than 15 s before an earlier micro-batch's end."""

    says = (
        "Query {query} read {records:# records}{stream: of stream #}{shard: of shard #} that "
        "arrived more than 15 s before the end of an earlier micro-batch."
    )
    query: str
    shard: ShardKey | None
    stream_arn: str | None
    records: int


class QueryWrote(OwnEvent, level=DEBUG):
    """A query has written the rows of a micro-batch to its sink."""

    says = "Query {query} wrote {rows:# rows}."
    query: str
    rows: int


class QueryEnded(OwnEvent):
    """A query has ended; ``error`` is the class of the exception, if there was one."""

    says = "Query {query} ended{error: with #}."
    query: str
    error: str | None
