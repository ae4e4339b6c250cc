"""How far whole streams have been read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from attrs import Factory, field, frozen

from kinesis_publishers.model.positions import ShardProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_publishers.model.positions import SequenceNumber, StartingPosition
    from kinesis_publishers.model.shards import ShardKey, StreamIdentity

__all__ = ["ShardRange", "StreamProgress", "is_refresh_due"]

# A quarter of the shortest retention: an idle shard's progress is renewed well before its age could
# be taken for lost data.
_REFRESH_AFTER = timedelta(hours=6)


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
        as_of: what arrived before it comes before the range; ``None`` if the range names its first
            record. It tells whether records at its beginning may have been removed.
        follows: the record before the first one, if it is known: whoever has read up to it may go
            on from there. It says nothing about which records the range has.
    """

    shard: ShardKey
    start: StartingPosition
    end: SequenceNumber | None
    as_of: datetime | None = field(default=None, eq=False)
    follows: SequenceNumber | None = field(
        eq=False,
        default=Factory(lambda self: ShardProgress(position=self.start).processed, takes_self=True),
    )


def is_refresh_due(written: datetime | None, current: datetime | None, now: datetime) -> bool:
    """Say whether the ``as_of`` of an idle shard should be stored anew.

    Args:
        written: the ``as_of`` that is stored.
        current: the one that is known.
        now: the time.
    """
    if current is None:
        return False
    return written is None or (now - written > _REFRESH_AFTER and current > written)
