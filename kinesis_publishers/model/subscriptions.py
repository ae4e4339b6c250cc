"""What a subscription delivers, and the stream consumer that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers.model.positions import SequenceNumber
    from kinesis_publishers.model.records import RecordPage

__all__ = ["StreamConsumer", "SubscriptionEvent"]


@frozen(kw_only=True, eq=False)
class SubscriptionEvent:
    """One ``SubscribeToShardEvent`` (AWS API reference).

    Attributes:
        page: the records, which may be none; the lag; the child shards of a shard that has ended.
            It has no shard iterator.
        continuation_sequence_number: a later subscription that begins after it misses nothing and
            repeats nothing; ``None`` when the shard has ended.
    """

    page: RecordPage
    continuation_sequence_number: SequenceNumber | None


@frozen(kw_only=True)
class StreamConsumer:
    """A consumer that is registered for enhanced fan-out on one stream.

    Attributes:
        name: unique on its stream.
        arn: names this registration: one that is made again has another ARN.
        status: ``CREATING``, ``ACTIVE`` or ``DELETING``.
        created_at: when it was registered (aware).
    """

    name: str
    arn: str
    status: str
    created_at: datetime
