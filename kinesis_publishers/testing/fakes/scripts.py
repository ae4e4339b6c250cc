"""The named behaviours of a shard, each as a data plane."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import count

from kinesis_publishers.model import PositionType, Record, StartingPosition, SubscriptionEvent
from kinesis_publishers.testing.fakes.planes import FakeDataPlane
from kinesis_publishers.testing.fakes.samples import SUCCESSOR, sample_records
from kinesis_publishers.testing.fakes.shards import (
    Answer,
    ExpiringIterators,
    ShardBehaviour,
    StoredShard,
    ThrottledCalls,
    event_of,
    raise_next,
)

__all__ = [
    "bounded_shard",
    "empty_shard",
    "events",
    "expired_iterator_after",
    "pushes_without_demand",
    "records_in_calls",
    "throttled",
]


def empty_shard(answers: int) -> FakeDataPlane:
    """A shard without records that ends with its ``answers``-th answer."""
    return FakeDataPlane(_EmptyShard(answers))


def records_in_calls(
    records: int | Sequence[Record], calls: int, millis_behind: int = 0
) -> FakeDataPlane:
    """A shard that returns ``records`` over ``calls`` GetRecords, and then ends.

    The answers are as equal in size as they can be. Reading may begin at any position.

    Args:
        records: how many of :func:`~kinesis_publishers.testing.fakes.sample_records`, or these.
        calls: the number of answers, each with at least one record.
        millis_behind: the lag of every answer but the last, which is at the tip.
    """
    return FakeDataPlane(_in_pages(records, calls, millis_behind))


def expired_iterator_after(answers: int, *, records: int | Sequence[Record] = 100) -> FakeDataPlane:
    """A shard whose iterator expires once, after this many answers.

    It holds ``records``, in two answers more than that, and has then ended. The test fails if
    GetRecords is called again without a new iterator.
    """
    shard = _in_pages(records, answers + 2)
    return FakeDataPlane(ExpiringIterators(shard, after=answers))


def throttled(times: int, *, records: int | Sequence[Record] = 10) -> FakeDataPlane:
    """A shard that refuses ``times`` GetRecords, returns ``records``, and then ends."""
    return FakeDataPlane(ThrottledCalls(_in_pages(records, 1), times=times))


def bounded_shard(
    records: int | Sequence[Record], batches: int, per_subscription: int | None = None
) -> FakeDataPlane:
    """A shard that pushes ``records`` in ``batches`` events, and then ends.

    Reading may begin and continue at any position.

    Args:
        records: how many of :func:`~kinesis_publishers.testing.fakes.sample_records`, or these.
        batches: the number of events, each with at least one record.
        per_subscription: the number of events in a subscription; ``None`` for no end.
    """
    return FakeDataPlane(_BoundedShard(_in_pages(records, batches), per_subscription))


def events(
    *pushed: SubscriptionEvent | Exception | None, refusals: Sequence[Exception | None] = ()
) -> FakeDataPlane:
    """A shard whose subscriptions push these events and raise these errors.

    Each subscription continues where the previous one ended, and ends when nothing is left.

    Args:
        pushed: the events and errors, in order; ``None`` ends a subscription.
        refusals: what the first SubscribeToShard calls are refused with, one each; ``None`` accepts
            one.
    """
    return FakeDataPlane(_Scripted(pushed, refusals))


def pushes_without_demand(size: int = 1000) -> FakeDataPlane:
    """A shard that always has another event, of one record of ``size`` bytes, and never ends."""
    return FakeDataPlane(_Pushing(size))


def _in_pages(
    records: int | Sequence[Record], pages: int, millis_behind_latest: int = 0
) -> StoredShard:
    """Return a closed shard that holds ``records`` in pages as equal in size as they can be."""
    held = sample_records(records) if isinstance(records, int) else list(records)
    if len(held) < pages:
        raise ValueError(
            f"{len(held)} records cannot come in {pages} answers or events of at least one each"
        )
    return StoredShard(
        held,
        page_ends=[len(held) * number // pages for number in range(1, pages + 1)],
        is_closed=True,
        child_shards=(SUCCESSOR,),
        millis_behind_latest=millis_behind_latest,
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


class _OnlyPushes(ShardBehaviour):
    """A shard that fails the test if it is polled."""

    async def locate(self, position: StartingPosition) -> int:
        raise AssertionError("GetShardIterator was called for a shard that is subscribed to")

    async def read(self, index: int, limit: int) -> Answer:
        raise AssertionError("GetRecords was called for a shard that is subscribed to")


class _BoundedShard(_OnlyPushes):
    def __init__(self, shard: StoredShard, per_subscription: int | None) -> None:
        self._shard = shard
        self._per_subscription = per_subscription

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        pushed = 0
        async for event in self._shard.subscribe(position):
            yield event
            pushed += 1
            if pushed == self._per_subscription:
                return


class _Scripted(_OnlyPushes):
    def __init__(
        self,
        pushed: Sequence[SubscriptionEvent | Exception | None],
        refusals: Sequence[Exception | None],
    ) -> None:
        self._left = deque(pushed)
        self._refusals = list(refusals)

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        raise_next(self._refusals)

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        while self._left and (item := self._left.popleft()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


class _Pushing(_OnlyPushes):
    def __init__(self, size: int) -> None:
        self._size = size

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        assert position.type in (PositionType.TRIM_HORIZON, PositionType.AFTER_SEQUENCE_NUMBER)
        number = position.sequence_number
        first = 0 if number is None else int(number.sequence_number) - 990
        for index in count(first):
            yield event_of(sample_records(1, first=index, size=self._size))
