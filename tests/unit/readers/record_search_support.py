"""A shard in memory, as a search sees it: pages, empty answers, and records that keep coming."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers import SequenceNumber, StartingPosition
from kinesis_publishers.model import PositionType
from kinesis_publishers.readers.ranges.record_search import RecordSearch, ShardPage
from kinesis_publishers.testing.fakes import batch_of, sample_records, sample_shard

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from kinesis_publishers import Record, Shard

__all__ = ["NOON", "ShardInMemory", "after_noon"]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@define
class ShardInMemory:
    """Records by the seconds after noon at which they arrived, in the order of the shard.

    Attributes:
        arrivals: when each record arrived; they need not be in order.
        is_closed: whether its end can be reached.
        later: records that come in, one with each look.
        empties: how many empty answers come before each answer.
        asked: the limits of all reads.
        shown: how many records were handed out.
    """

    arrivals: list[float]
    is_closed: bool = field(default=False, kw_only=True)
    later: list[float] = field(factory=list, kw_only=True)
    empties: Sequence[int] = field(default=(), kw_only=True)
    asked: list[int] = field(factory=list, init=False)
    shown: int = field(default=0, init=False)
    _empty_counts: Iterator[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._empty_counts = chain(self.empties, repeat(0))

    def records(self, index: int, limit: int) -> list[Record]:
        arrivals = self.arrivals[index : index + limit]
        start = NOON.timestamp()
        return [
            record._replace(arrival_epoch_seconds=start + arrival)
            for record, arrival in zip(
                sample_records(len(arrivals), first=index), arrivals, strict=True
            )
        ]

    def number(self, index: int) -> SequenceNumber:
        return SequenceNumber(sample_records(1, first=index)[0].sequence_number)

    def index_of(self, position: StartingPosition) -> int:
        """Return where reading from ``position`` begins."""
        if position.timestamp is not None:
            instant = (position.timestamp - NOON).total_seconds()
            found = (at for at, arrival in enumerate(self.arrivals) if arrival >= instant)
            return next(found, len(self.arrivals))
        if position.sequence_number is None:
            return 0
        index = int(str(position.sequence_number)) - int(str(self.number(0)))
        return index + (position.type is PositionType.AFTER_SEQUENCE_NUMBER)

    def last_before(
        self, until: StartingPosition, since: StartingPosition
    ) -> SequenceNumber | None:
        """Say what a search has to find."""
        index = self.index_of(until) - 1
        return self.number(index) if index >= self.index_of(since) else None

    async def search(
        self, until: float, since: StartingPosition | None = None
    ) -> SequenceNumber | None:
        """Search this shard for the last record before an instant."""
        since = since or StartingPosition.trim_horizon()
        instant = after_noon(until)
        return await RecordSearch(self.read).last_record(sample_shard(), since=since, until=instant)

    async def read(
        self, shard: Shard, position: StartingPosition, limit: int
    ) -> AsyncGenerator[ShardPage, None]:
        self.asked.append(limit)
        assert len(self.asked) < 200, "the search does not end"
        index = self.index_of(position)
        while True:
            for _ in range(next(self._empty_counts)):
                yield ShardPage(batch=batch_of([], millis_behind_latest=1000))
            records = self.records(index, limit)
            index += len(records)
            self.shown += len(records)
            is_at_tip = index >= len(self.arrivals)
            yield ShardPage(
                batch=batch_of(records, millis_behind_latest=0 if is_at_tip else 1000),
                has_ended=is_at_tip and self.is_closed,
            )
            if is_at_tip and self.is_closed:
                return
            self.arrivals += self.later[:1]
            del self.later[:1]
