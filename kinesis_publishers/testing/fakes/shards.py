"""The answers of one shard of a scripted data plane: pages and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence

from attrs import define, field, frozen

from kinesis_publishers.errors import IteratorExpiredError, ThroughputExceededError
from kinesis_publishers.model import (
    ChildShard,
    PositionType,
    Record,
    RecordPage,
    SequenceNumber,
    StartingPosition,
    SubscriptionEvent,
)

__all__ = [
    "Answer",
    "ExpiringIterators",
    "FailingCalls",
    "ShardBehaviour",
    "StoredShard",
    "ThrottledCalls",
    "event_of",
]

_MOST_RECORDS = 10_000


@frozen(kw_only=True)
class Answer:
    """What one GetRecords returns.

    Attributes:
        records: the records, in order.
        next_index: where the next iterator stands; ``None`` when the shard has ended.
        millis_behind_latest: how far the answer is from the tip.
        child_shards: the shards that continue this one, once it has ended.
    """

    records: Sequence[Record] = ()
    next_index: int | None
    millis_behind_latest: int | None = 0
    child_shards: tuple[ChildShard, ...] = ()

    def as_page(self, next_shard_iterator: str | None) -> RecordPage:
        """Return the answer as the data plane hands it over."""
        return RecordPage(
            payloads=[record.data for record in self.records],
            partition_keys=[record.partition_key for record in self.records],
            sequence_numbers=[record.sequence_number for record in self.records],
            arrival_epoch_seconds=[record.arrival_epoch_seconds for record in self.records],
            next_shard_iterator=next_shard_iterator,
            millis_behind_latest=self.millis_behind_latest,
            child_shards=self.child_shards,
        )

    def as_event(self, continuation: str | None) -> SubscriptionEvent:
        """Return the answer as a subscription pushes it."""
        number = None if continuation is None else SequenceNumber(continuation)
        return SubscriptionEvent(page=self.as_page(None), continuation_sequence_number=number)


class ShardBehaviour(ABC):
    """Decides what a shard answers; raise from any method to make the call fail."""

    @abstractmethod
    async def locate(self, position: StartingPosition) -> int:
        """Answer GetShardIterator: return the index of the record at ``position``."""

    @abstractmethod
    async def read(self, index: int, limit: int) -> Answer:
        """Answer GetRecords from the record ``index`` on."""

    async def accept(  # noqa: B027 - most accept everything
        self, consumer_arn: str, position: StartingPosition
    ) -> None:
        """Accept a SubscribeToShard by returning, or refuse it by raising."""

    async def subscribe(self, position: StartingPosition) -> AsyncIterator[SubscriptionEvent]:
        """Yield what an accepted subscription pushes; returning ends it.

        Unless a behaviour says otherwise it pushes what GetRecords would answer, and ends the
        subscription at the tip.
        """
        index: int | None = await self.locate(position)
        reached = "0" if position.sequence_number is None else str(position.sequence_number)
        while index is not None:
            answer = await self.read(index, _MOST_RECORDS)
            reached = answer.records[-1].sequence_number if answer.records else reached
            yield answer.as_event(None if answer.next_index is None else reached)
            if answer.next_index == index:
                return
            index = answer.next_index


@define(eq=False)
class StoredShard(ShardBehaviour):
    """A shard as the service keeps it: it honours positions, and its end can be reached.

    Attributes:
        records: its records; a test may append while they are read.
        page_ends: the indices at which an answer stops before its Limit; without them, answers
            are as large as their Limit allows.
        is_closed: whether its end can be reached.
        child_shards: what its last answer announces.
        millis_behind_latest: the lag of every answer that does not reach the tip.
    """

    records: list[Record] = field(factory=list)
    page_ends: Sequence[int] = field(factory=tuple, kw_only=True)
    is_closed: bool = field(default=False, kw_only=True)
    child_shards: tuple[ChildShard, ...] = field(default=(), kw_only=True)
    millis_behind_latest: int = field(default=1000, kw_only=True)

    def extend(self, records: Iterable[Record]) -> None:
        """Add ``records`` at the tip."""
        self.records.extend(records)

    def close(self, *child_shards: ChildShard) -> None:
        """Let the shard end after what it holds now."""
        self.is_closed = True
        self.child_shards = child_shards

    async def locate(self, position: StartingPosition) -> int:
        if position.sequence_number is not None:
            is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
            bisect = bisect_right if is_after else bisect_left
            number = int(position.sequence_number.sequence_number)
            return bisect(self.records, number, key=lambda one: int(one.sequence_number))
        instant = position.timestamp
        if instant is not None:
            arrivals = enumerate(one.approximate_arrival_timestamp for one in self.records)
            return next((at for at, then in arrivals if then >= instant), len(self.records))
        return 0 if position.type is PositionType.TRIM_HORIZON else len(self.records)

    async def read(self, index: int, limit: int) -> Answer:
        stop = min([index + limit, *(end for end in self.page_ends if end > index)])
        found = self.records[index:stop]
        reached = index + len(found)
        is_at_tip = reached >= len(self.records)
        has_ended = self.is_closed and is_at_tip
        return Answer(
            records=found,
            next_index=None if has_ended else reached,
            millis_behind_latest=0 if is_at_tip else self.millis_behind_latest,
            child_shards=self.child_shards if has_ended else (),
        )


class FailingCalls(ShardBehaviour):
    """Fails the first calls with given errors, one each, and then answers.

    Args:
        shard: what answers afterwards.
        on_locate: the errors of the first GetShardIterator calls; ``None`` lets one through.
        on_read: the same of GetRecords.
    """

    def __init__(
        self,
        shard: ShardBehaviour,
        *,
        on_locate: tuple[Exception | None, ...] = (),
        on_read: tuple[Exception | None, ...] = (),
    ) -> None:
        self._shard = shard
        self._on_locate = list(on_locate)
        self._on_read = list(on_read)

    async def locate(self, position: StartingPosition) -> int:
        raise_next(self._on_locate)
        return await self._shard.locate(position)

    async def read(self, index: int, limit: int) -> Answer:
        raise_next(self._on_read)
        return await self._shard.read(index, limit)


class ThrottledCalls(FailingCalls):
    """Refuses the first GetRecords calls because the read quota of the shard is used up."""

    def __init__(self, shard: ShardBehaviour, *, times: int) -> None:
        refusal = ThroughputExceededError(
            "GetRecords: ProvisionedThroughputExceededException: Rate exceeded for shard.",
            operation="GetRecords",
            code="ProvisionedThroughputExceededException",
        )
        super().__init__(shard, on_read=(refusal,) * times)


class ExpiringIterators(ShardBehaviour):
    """Lets an iterator expire once, ``after`` this many answers; it must then be replaced."""

    def __init__(self, shard: ShardBehaviour, *, after: int) -> None:
        self._shard = shard
        self._answers_left = after
        self._must_be_replaced = False

    async def locate(self, position: StartingPosition) -> int:
        self._must_be_replaced = False
        return await self._shard.locate(position)

    async def read(self, index: int, limit: int) -> Answer:
        assert not self._must_be_replaced, (
            "GetRecords was called again after ExpiredIteratorException, without a new iterator"
        )
        self._answers_left -= 1
        if self._answers_left == -1:
            self._must_be_replaced = True
            raise IteratorExpiredError(
                "GetRecords: ExpiredIteratorException: Iterator expired.",
                operation="GetRecords",
                code="ExpiredIteratorException",
            )
        return await self._shard.read(index, limit)


def raise_next(errors: list[Exception | None]) -> None:
    """Take the next of ``errors``, and raise it unless it is ``None``."""
    error = errors.pop(0) if errors else None
    if error is not None:
        raise error


def event_of(
    records: Sequence[Record] = (),
    *,
    continuation: str | None = "",
    child_shards: tuple[ChildShard, ...] = (),
    millis_behind_latest: int | None = 0,
) -> SubscriptionEvent:
    """Return ``records`` as one event.

    It continues after the last record unless ``continuation`` names another sequence number, or is
    ``None``, as at the end of the shard.
    """
    if continuation == "":
        continuation = records[-1].sequence_number
    answer = Answer(
        records=records,
        next_index=None,
        millis_behind_latest=millis_behind_latest,
        child_shards=child_shards,
    )
    return answer.as_event(continuation)
