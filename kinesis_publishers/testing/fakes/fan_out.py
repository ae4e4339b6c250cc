"""The named behaviours of fan-out: each returns a data plane that shows one."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from kinesis_publishers.errors import LimitExceededError, StreamNotFoundError
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
    "alternating_success_and_error",
    "bounded_shard",
    "empty_event_then_record",
    "error_during_subscription",
    "events",
    "never_answers",
    "pushes_without_demand",
    "rnf_when_subscribing",
]

_OPERATION = "SubscribeToShard"


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
    *pushed: SubscriptionEvent | Exception, refusals: Sequence[Exception] = ()
) -> FakeDataPlane:
    """A shard whose first subscription pushes exactly these, and raises what is an error.

    Later subscriptions go on behind the error with what is left, and end when nothing is.

    Args:
        pushed: the events and errors, in order.
        refusals: what the first SubscribeToShard calls are refused with, one each.
    """
    return FakeDataPlane(_Scripted(pushed, refusals))


def rnf_when_subscribing() -> FakeDataPlane:
    """A shard that answers every SubscribeToShard with ResourceNotFoundException."""
    refusal = StreamNotFoundError(
        f"{_OPERATION}: ResourceNotFoundException: not found.",
        operation=_OPERATION,
        code="ResourceNotFoundException",
    )
    return FakeDataPlane(_Refusing(refusal))


def error_during_subscription(*errors: Exception, records: int = 0) -> FakeDataPlane:
    """A shard whose first subscriptions push one record each and then fail with ``errors``.

    The next subscription pushes the rest, and the shard has ended.

    Args:
        errors: what the subscriptions fail with, one each.
        records: how many records there are, one more than errors unless more are asked for.
    """
    held = max(records, len(errors) + 1)
    return FakeDataPlane(_Failing(_stored(held, held), errors))


def alternating_success_and_error(records: int = 5) -> FakeDataPlane:
    """A shard that pushes one record per subscription and refuses every second SubscribeToShard."""
    return FakeDataPlane(_Alternating(_stored(records, records)))


def never_answers() -> FakeDataPlane:
    """A shard whose SubscribeToShard is neither accepted nor refused."""
    return FakeDataPlane(_NeverAnswering())


def pushes_without_demand(size: int = 1000) -> FakeDataPlane:
    """A shard that always has another event, of one record of ``size`` bytes, and never ends."""
    return FakeDataPlane(_Pushing(size))


def empty_event_then_record() -> FakeDataPlane:
    """A shard that pushes a heartbeat, then a record in another subscription, and has then ended.

    The continuation of the heartbeat is behind TRIM_HORIZON: it is where the second one must begin.
    """
    record = sample_records(1)
    heartbeat = event_of(continuation="500", millis_behind_latest=0)
    last = event_of(record, continuation=None, child_shards=(SUCCESSOR,))
    return FakeDataPlane(_OnePerSubscription((heartbeat, last)))


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
        pushed: Sequence[SubscriptionEvent | Exception],
        refusals: Sequence[Exception] = (),
    ) -> None:
        self._left = deque(pushed)
        self._refusals = deque(refusals)

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        if self._refusals:
            raise self._refusals.popleft()

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        while self._left:
            item = self._left.popleft()
            if isinstance(item, Exception):
                raise item
            yield item


class _OnePerSubscription(_Scripted):
    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        async for event in super().subscribe(position):
            yield event
            return


class _Refusing(_OnlyPushes):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        raise self._error


class _Failing(_OnlyPushes):
    def __init__(self, shard: StoredShard, errors: Sequence[Exception]) -> None:
        self._shard = shard
        self._errors = deque(errors)

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        error = self._errors.popleft() if self._errors else None
        async for event in self._shard.subscribe(position):
            yield event
            if error is not None:
                raise error


class _Alternating(_OnlyPushes):
    def __init__(self, shard: StoredShard) -> None:
        self._shard = shard
        self._calls = count()

    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        if next(self._calls) % 2:
            raise LimitExceededError(
                f"{_OPERATION}: LimitExceededException: Rate exceeded.",
                operation=_OPERATION,
                code="LimitExceededException",
            )

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        async for event in self._shard.subscribe(position):
            yield event
            return


class _NeverAnswering(_OnlyPushes):
    async def accept(self, consumer_arn: str, position: StartingPosition) -> None:
        await asyncio.Event().wait()


class _Pushing(_OnlyPushes):
    def __init__(self, size: int) -> None:
        self._size = size

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        assert position.type in (PositionType.TRIM_HORIZON, PositionType.AFTER_SEQUENCE_NUMBER)
        number = position.sequence_number
        first = 0 if number is None else int(number.sequence_number) - 990
        for index in count(first):
            yield event_of(sample_records(1, first=index, size=self._size))
