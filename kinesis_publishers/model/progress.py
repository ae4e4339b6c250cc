"""How far whole streams have been read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import Factory, field, frozen

from kinesis_publishers.model.positions import ShardProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.model.positions import SequenceNumber, StartingPosition
    from kinesis_publishers.model.shards import ShardKey, StreamIdentity

__all__ = ["ShardRange", "StreamProgress"]


@frozen(kw_only=True)
class StreamProgress:
    """How far a stream has been read.

    Attributes:
        identity: which stream; one that was created again has another identity.
        shards: the progress of each shard, by shard id.
    """

    identity: StreamIdentity
    shards: Mapping[str, ShardProgress]


@frozen(kw_only=True)
class ShardRange:
    """Some records of one shard.

    Attributes:
        shard: which shard.
        start: where the range begins.
        end: its last record, included; ``None`` is everything up to the end of the shard, which is
            closed and therefore does not change any more.
        follows: the record before the first one, if it is known: whoever has read up to it may go
            on from there. It says nothing about which records the range has.
    """

    shard: ShardKey
    start: StartingPosition
    end: SequenceNumber | None
    follows: SequenceNumber | None = field(
        eq=False,
        default=Factory(lambda self: ShardProgress(position=self.start).processed, takes_self=True),
    )
