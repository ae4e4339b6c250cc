"""Events of reading: fetchers, streams, shards and ranges, records, and their processing."""

from __future__ import annotations

from datetime import datetime
from logging import DEBUG, WARNING

from attrs import frozen

from kinesis_publishers.events.event import Event, ShardEvent
from kinesis_publishers.model import SequenceNumber, ShardKey, StartingPosition


@frozen(kw_only=True)
class FetcherStarted(Event):
    """A fetcher began to run.

    Attributes:
        streams: names or ARNs.
    """

    says = "A fetcher of {streams} started."
    streams: tuple[str, ...]


@frozen(kw_only=True)
class FetcherStopped(Event):
    """A fetcher has stopped: none of its shards is read further.

    Attributes:
        streams: names or ARNs.
        error: what stopped it, in words; ``None`` if it was asked to stop.
    """

    says = "A fetcher of {streams} stopped after {seconds:.1f} s{error:: #}."
    streams: tuple[str, ...]
    seconds: float
    error: str | None


@frozen(kw_only=True)
class StreamPrepared(Event):
    """A stream was found, and the position to read each of its shards from is fixed.

    Attributes:
        shards: how many of its shards are known, including those that have ended.
        is_resumed: whether reading continues where an earlier reader stopped.
    """

    says = "Stream {stream} is ready with {shards:# shards}."
    stream_arn: str
    shards: int
    is_resumed: bool


@frozen(kw_only=True)
class ShardsDiscovered(Event):
    """ListShards, or the last answer of a parent, listed shards that were not known before."""

    says = "Stream {stream} has new shards: {shard_ids}."
    stream_arn: str
    shard_ids: tuple[str, ...]


@frozen(kw_only=True)
class ShardStarted(ShardEvent):
    """Reading of a shard began."""

    says = "Shard {shard} started at {position}."
    position: StartingPosition


@frozen(kw_only=True)
class ShardEnded(ShardEvent):
    """A shard was read to its end, or has left the retention; it is not read further."""

    says = "Shard {shard} ended."


@frozen(kw_only=True)
class ShardStopped(ShardEvent):
    """Reading of a shard stopped before its end; a later reader continues there.

    Attributes:
        position: where a later reader continues.
        error: what it failed with, in words; ``None`` if it was asked to stop.
    """

    says = "Shard {shard} stopped at {position}{error:: #}."
    position: StartingPosition
    error: str | None


@frozen(kw_only=True)
class ShardLeftBehind(ShardEvent, level=WARNING):
    """A shard made no progress for so long that the others stopped waiting for it.

    Attributes:
        seconds: how far it is behind the one that is furthest; ``None`` if it was never read.
    """

    says = (
        "Shard {shard} cannot be read{seconds:, # s behind}: the other shards continue without it. "
        "Its records may come too late for windows of event time "
        "(kinesis.spark.alignment.patience)."
    )
    seconds: float | None


@frozen(kw_only=True)
class RangeRead(ShardEvent):
    """An exact range of a shard was read and handed on.

    Attributes:
        end: its last record, or the one that follows it; ``None`` for a range that ends at an
            instant or with the shard.
    """

    says = "Shard {shard} was read from {start}{end: to #} in {seconds:.1f} s."
    start: StartingPosition
    end: SequenceNumber | None
    seconds: float


@frozen(kw_only=True)
class RecordsFetched(ShardEvent, level=DEBUG):
    """A GetRecords was answered.

    Attributes:
        records: how many records Kinesis had stored; an aggregate counts as one.
        payload_bytes: how large they are together.
        millis_behind_latest: how far behind the tip of the shard the answer ends.
        limit: the maximum number of records that was requested.
        loop_seconds: from the beginning of the previous call to the beginning of this one; ``None``
            for the first call.
        sleep_seconds: how much of the time since the previous answer was spent sleeping, to keep
            the pace and to back off.
        call_seconds: how long the call took.
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


@frozen(kw_only=True)
class IteratorReplaced(ShardEvent, level=DEBUG):
    """An expired shard iterator was replaced, from the stored position."""

    says = "Shard {shard} has a new iterator at {position}: the old one had expired."
    position: StartingPosition


@frozen(kw_only=True)
class SubscriptionStarted(ShardEvent, level=DEBUG):
    """SubscribeToShard was accepted.

    Attributes:
        is_reopened: whether it continues one that has ended.
    """

    says = "Shard {shard} accepted a subscription at {position}."
    position: StartingPosition
    consumer_arn: str
    is_reopened: bool = False


@frozen(kw_only=True)
class SubscriptionEnded(ShardEvent, level=DEBUG):
    """A subscription is over; unless the shard has ended, another one follows."""

    says = "Shard {shard} ended a subscription after {seconds:.1f} s: {reason:#}."
    reason: str
    seconds: float


@frozen(kw_only=True)
class EventReceived(ShardEvent, level=DEBUG):
    """A subscription delivered an event, which may have been a heartbeat without records."""

    says = "Shard {shard} sent {records:# records}{millis_behind_latest:, # ms behind its tip}."
    records: int
    payload_bytes: int
    millis_behind_latest: int | None


@frozen(kw_only=True)
class RecordsSkipped(ShardEvent, level=DEBUG):
    """Records were dropped: they had been delivered before, or came twice in one answer."""

    says = "Shard {shard} returned {records:# records} that had been delivered before."
    records: int


@frozen(kw_only=True)
class AggregatesExpanded(ShardEvent, level=DEBUG):
    """A delivery contained aggregates, or records that begin like one.

    Attributes:
        aggregates: how many were deaggregated.
        user_records: how many records were in them.
        left_out: how many of these were not delivered because their hash keys belong to another
            shard: after a reshard the KPL puts them there again.
        foreign: how many were delivered although their hash keys belong to another shard.
        corrupt: how many records begin like an aggregate and are not valid; they were delivered as
            they are.
        copies: how many were not delivered because their producer has noted that an earlier
            aggregate of the shard has them, too.
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


@frozen(kw_only=True)
class RecordsProcessed(ShardEvent, level=DEBUG):
    """The application has taken a delivery: its records count as processed.

    Attributes:
        seconds: how long the application took.
    """

    says = "The application processed {records:# records} of shard {shard} in {seconds:.3f} s."
    records: int
    payload_bytes: int
    seconds: float


# kinesis_publishers.engine.slow_calls warns about it in words.
@frozen(kw_only=True)
class CallbackDelayed(Event, level=DEBUG):
    """A call of the application takes longer than it may, or has returned after that.

    Attributes:
        shard: what it was called for; ``None`` for a watermark, or a hook of ``read``.
        record: what it was called with, the first one of a batch; ``None`` for a hook.
        seconds: how long it has taken so far; the next report comes after twice as long.
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


@frozen(kw_only=True)
class LagMeasured(ShardEvent, level=DEBUG):
    """How far processing is behind, every five seconds while a shard is read.

    Attributes:
        seconds: the age of the oldest record that is being processed or waits for that, or of what
            was read last; 0 at the tip.
    """

    says = "Shard {shard} is processed with a lag of {seconds:.1f} s."
    seconds: float


@frozen(kw_only=True)
class WatermarkMeasured(Event, level=DEBUG):
    """The watermark of a reader has advanced, or has not in five seconds.

    Attributes:
        watermark: all records with earlier event times, within the disorder, have been processed.
        seconds: how old the watermark is.
    """

    says = "The watermark is {watermark}, {seconds:.1f} s ago."
    watermark: datetime
    seconds: float


@frozen(kw_only=True)
class ProcessingFailed(ShardEvent, level=WARNING):
    """The application raised an error: the records of the delivery do not count as processed."""

    says = "The application failed on {records:# records} of shard {shard}: {error:#}."
    records: int
    error: str


@frozen(kw_only=True)
class CheckpointsSaved(Event, level=DEBUG):
    """The checkpoint store has written how far shards have been processed, or where they begin."""

    says = "The checkpoint store saved {shards:# shards} in {seconds:.3f} s."
    shards: int
    seconds: float


@frozen(kw_only=True)
class CheckpointsRefused(Event, level=WARNING):
    """The checkpoint store has refused a write: another reader has written in the meantime.

    Attributes:
        message: which shard, and what to do.
    """

    says = "{message:#}."
    message: str


@frozen(kw_only=True)
class LeaseTaken(ShardEvent):
    """This worker has got the lease on a shard, and reads it."""

    says = "This worker took the lease on shard {shard}."


@frozen(kw_only=True)
class LeaseReleased(ShardEvent):
    """This worker has given a lease back, after it had finished what it had handed out.

    Attributes:
        owner: the worker that had asked for it; ``None`` if anybody may take it.
    """

    says = "This worker released the lease on shard {shard}{owner: to #}."
    owner: str | None


@frozen(kw_only=True)
class LeaseLost(ShardEvent, level=WARNING):
    """Another worker has taken a lease from this one; records may be repeated there.

    Attributes:
        owner: who has it now; ``None`` if no worker has.
        is_removed: whether the row was removed, and the checkpoint with it.
    """

    says = "This worker lost the lease on shard {shard}{owner: to #}; records may be repeated."
    owner: str | None
    is_removed: bool = False


@frozen(kw_only=True)
class LeasesCounted(Event, level=DEBUG):
    """This worker has looked at the leases of the application.

    Attributes:
        worker: its name.
        current: how many leases it holds.
        total: how many shards there are that have not ended.
        workers: how many workers are alive, as far as they hold leases.
        free: how many leases no worker holds.
        spilled: how many free ones it does not take because it has as many as it may.
    """

    says = "Worker {worker} holds {current} of {total:# leases}; {free} are free."
    worker: str
    current: int
    total: int
    workers: int
    free: int
    spilled: int
