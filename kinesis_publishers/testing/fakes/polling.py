"""The named behaviours of polling: each returns a data plane that shows one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from kinesis_publishers.testing.fakes.planes import FakeDataPlane
from kinesis_publishers.testing.fakes.samples import SUCCESSOR, sample_aggregates, sample_records
from kinesis_publishers.testing.fakes.shards import (
    Answer,
    ExpiringIterators,
    ShardBehaviour,
    StoredShard,
    ThrottledCalls,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from kinesis_publishers.model import Record, StartingPosition

__all__ = [
    "FeedItem",
    "aggregated",
    "empty_shard",
    "expired_iterator_after",
    "live_feed",
    "records_in_calls",
    "throttled",
]

#: What :func:`live_feed` takes: records, an error to raise, or ``None`` for the end of the shard.
FeedItem: TypeAlias = "Sequence[Record] | Exception | None"


def empty_shard(answers: int) -> FakeDataPlane:
    """A shard without records that ends with its ``answers``-th answer."""
    return FakeDataPlane(_EmptyShard(answers))


def records_in_calls(
    records: int | Sequence[Record], calls: int, millis_behind: int = 0
) -> FakeDataPlane:
    """A shard that hands out ``records`` over ``calls`` GetRecords and has then ended.

    The answers are as equal in size as they can be. Reading may begin at any position.

    Args:
        records: how many of :func:`~kinesis_publishers.testing.fakes.sample_records`, or these.
        calls: how many answers they come in, at least one record each.
        millis_behind: the lag of every answer but the last, which is at the tip.
    """
    return FakeDataPlane(_shard_in_calls(records, calls, millis_behind))


def expired_iterator_after(answers: int, *, records: int | Sequence[Record] = 100) -> FakeDataPlane:
    """A shard whose iterator expires, once, after so many answers.

    It holds ``records``, in two answers more than that, and has then ended. The test fails if
    GetRecords is called again without a new iterator.
    """
    shard = _shard_in_calls(records, answers + 2, 0)
    return FakeDataPlane(ExpiringIterators(shard, after=answers))


def throttled(times: int, *, records: int | Sequence[Record] = 10) -> FakeDataPlane:
    """A shard that refuses ``times`` GetRecords, then hands out ``records`` and has ended."""
    return FakeDataPlane(ThrottledCalls(_shard_in_calls(records, 1, 0), times=times))


def aggregated(per_batch: int, children: int, batches: int) -> FakeDataPlane:
    """A shard of aggregates, as the KPL puts them, that hands them out and has then ended.

    :func:`~kinesis_publishers.testing.fakes.taken_apart` of
    :func:`~kinesis_publishers.testing.fakes.sample_aggregates` says what a reader gets. It can be
    polled and subscribed to.

    Args:
        per_batch: how many aggregates one answer has.
        children: how many user records are in each, two at least: the KPL does not aggregate one.
        batches: how many answers they come in.
    """
    if children < 2:
        raise ValueError(f"an aggregate has at least two records, not {children}")
    return records_in_calls(sample_aggregates(per_batch * batches, children), batches)


def live_feed(queue: asyncio.Queue[FeedItem]) -> FakeDataPlane:
    """A shard into which the test writes while it is read.

    GetRecords never waits: it returns what has been put into ``queue`` by then, and may be empty.

    Args:
        queue: records to hand out, an error to raise instead of one answer, or ``None`` to end the
            shard after what came before.
    """
    return FakeDataPlane(_LiveFeed(queue))


def _shard_in_calls(records: int | Sequence[Record], calls: int, millis_behind: int) -> StoredShard:
    held = sample_records(records) if isinstance(records, int) else list(records)
    if len(held) < calls:
        raise ValueError(f"{len(held)} records cannot come in {calls} answers of at least one each")
    return StoredShard(
        held,
        page_ends=[len(held) * number // calls for number in range(1, calls + 1)],
        is_closed=True,
        child_shards=(SUCCESSOR,),
        millis_behind_latest=millis_behind,
    )


class _EmptyShard(ShardBehaviour):
    def __init__(self, answers: int) -> None:
        self._answers_left = answers

    async def locate(self, position: StartingPosition) -> int:
        return 0

    async def read(self, index: int, limit: int) -> Answer:
        self._answers_left -= 1
        if self._answers_left > 0:
            return Answer(next_index=0)
        return Answer(next_index=None, child_shards=(SUCCESSOR,))


class _LiveFeed(ShardBehaviour):
    def __init__(self, queue: asyncio.Queue[FeedItem]) -> None:
        self._queue = queue
        self._items: deque[FeedItem] = deque()
        self._shard = StoredShard()

    async def locate(self, position: StartingPosition) -> int:
        return await self._shard.locate(position)

    async def read(self, index: int, limit: int) -> Answer:
        while not self._queue.empty():
            self._items.append(self._queue.get_nowait())
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Exception):
                raise item
            if item is None:
                self._shard.close(SUCCESSOR)
            else:
                self._shard.extend(item)
        return await self._shard.read(index, limit)
