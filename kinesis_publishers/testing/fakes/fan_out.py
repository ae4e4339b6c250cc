"""The named behaviours of fan-out: each returns a data plane that shows one."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from kinesis_publishers.model import PositionType
from kinesis_publishers.testing.fakes.planes import FakeDataPlane
from kinesis_publishers.testing.fakes.samples import SUCCESSOR, sample_records
from kinesis_publishers.testing.fakes.shards import (
    Answer,
    ShardBehaviour,
    StoredShard,
    event_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from kinesis_publishers.model import Record, StartingPosition, SubscriptionEvent

__all__ = [
    "bounded_shard",
    "events",
    "pushes_without_demand",
]


def bounded_shard(
    records: int | Sequence[Record], batches: int, per_subscription: int | None = None
) -> FakeDataPlane:
    """A shard that pushes ``records`` in ``batches`` events and has then ended.

    Reading may begin and go on at any position.

    Args:
        records: how many of :func:`~kinesis_publishers.testing.fakes.sample_records`, or these.
        batches: how many events they come in, at least one record each.
        per_subscription: after how many events a subscription ends; ``None`` lets it last.
    """
    return FakeDataPlane(_BoundedShard(_stored(records, batches), per_subscription))


def events(
    *pushed: SubscriptionEvent | Exception | None, refusals: Sequence[Exception | None] = ()
) -> FakeDataPlane:
    """A shard whose subscriptions push exactly these, and raise what is an error.

    Each subscription goes on where the one before has ended, and ends when nothing is left.

    Args:
        pushed: the events and errors, in order; ``None`` ends a subscription.
        refusals: what the first SubscribeToShard calls are refused with, one each; ``None`` accepts
            one.
    """
    return FakeDataPlane(_Scripted(pushed, refusals))


def pushes_without_demand(size: int = 1000) -> FakeDataPlane:
    """A shard that always has another event, of one record of ``size`` bytes, and never ends."""
    return FakeDataPlane(_Pushing(size))


def _stored(records: int | Sequence[Record], batches: int) -> StoredShard:
    held = sample_records(records) if isinstance(records, int) else list(records)
    if len(held) < batches:
        raise ValueError(
            f"{len(held)} records cannot come in {batches} events of at least one each"
        )
    return StoredShard(
        held,
        page_ends=[len(held) * number // batches for number in range(1, batches + 1)],
        is_closed=True,
        child_shards=(SUCCESSOR,),
    )


class _OnlyPushes(ShardBehaviour):
    """A shard that is not polled."""

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
        self._refusals = deque(refusals)

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        refusal = self._refusals.popleft() if self._refusals else None
        if refusal is not None:
            raise refusal

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
