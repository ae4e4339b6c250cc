"""A stream in memory whose arrival times are neither exact nor in order, and refused at random."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from attrs import define, field

from kinesis_publishers import RecordPage, Shard, StreamIdentity
from kinesis_publishers.abc import ControlPlane, DataPlane
from kinesis_publishers.errors import (
    InvalidArgumentError,
    IteratorExpiredError,
    ThroughputExceededError,
)
from kinesis_publishers.model import PositionType, StreamSummary

if TYPE_CHECKING:
    from random import Random

    from kinesis_publishers import Clock, StartingPosition

__all__ = ["ARN", "DisorderedPlane", "MemoryShard"]

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
_REFUSED = 0.1
_JITTER_SECONDS = 5.0


@define
class MemoryShard:
    """Sequence numbers and arrival times, in the order of the numbers."""

    parent: str | None = None
    numbers: list[int] = field(factory=list)
    arrivals: list[float] = field(factory=list)
    is_closed: bool = False
    is_listed_as_closed: bool = False

    def index_of(self, position: StartingPosition) -> int:
        if position.timestamp is not None:
            instant = position.timestamp.timestamp()
            later = (i for i, arrival in enumerate(self.arrivals) if arrival >= instant)
            return next(later, len(self.numbers))
        if position.sequence_number is None:
            return 0
        number = int(position.sequence_number.sequence_number)
        is_after = position.type is PositionType.AFTER_SEQUENCE_NUMBER
        return sum(one < number or (is_after and one == number) for one in self.numbers)


class DisorderedPlane(DataPlane, ControlPlane):
    """Both planes over shards in memory; the clock is so far ahead of the service's own."""

    def __init__(self, clock: Clock, random: Random, ahead_seconds: float) -> None:
        self._clock = clock
        self._ahead_seconds = ahead_seconds
        self._random = random
        self._next_number = 1
        self.shards = {"shardId-0": MemoryShard()}

    def _now(self) -> float:
        return self._clock.now().timestamp() - self._ahead_seconds

    def put(self, count: int) -> None:
        """Store records in open shards, many of them at the same instant as others."""
        for _ in range(count):
            shard = self._random.choice([one for one in self.shards.values() if not one.is_closed])
            self._next_number += self._random.randint(1, 5)
            arrival = self._now() - self._random.random() * _JITTER_SECONDS
            shard.numbers.append(self._next_number)
            shard.arrivals.append(float(int(arrival)) if self._random.random() < 0.3 else arrival)

    def split(self) -> None:
        """Close a shard, which the listing may say later, and open two others."""
        parent = self._random.choice([k for k, one in self.shards.items() if not one.is_closed])
        self.shards[parent].is_closed = True
        for _ in range(2):
            self.shards[f"shardId-{len(self.shards)}"] = MemoryShard(parent)

    async def describe_stream(self, stream: str) -> StreamSummary:
        created_at = datetime(2025, 1, 1, tzinfo=UTC)
        return StreamSummary(
            identity=StreamIdentity(name="orders", arn=ARN, created_at=created_at),
            status="ACTIVE",
            retention_seconds=86400.0,
        )

    async def list_shards(
        self, stream_arn: str, *, since: datetime | None = None
    ) -> tuple[Shard, ...]:
        for one in self.shards.values():
            one.is_listed_as_closed |= one.is_closed and self._random.random() < 0.7
        return tuple(
            Shard(
                stream_arn=ARN,
                shard_id=shard_id,
                parent_shard_id=one.parent,
                ending_sequence_number="9" if one.is_listed_as_closed else None,
            )
            for shard_id, one in self.shards.items()
        )

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        self._refuse_sometimes("GetShardIterator")
        if position.timestamp is not None and position.timestamp.timestamp() > self._now():
            raise InvalidArgumentError(
                "in the future",
                operation="GetShardIterator",
                code="InvalidArgumentException",
                request_id=None,
            )
        return str(self.shards[shard.shard_id].index_of(position))

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        self._refuse_sometimes("GetRecords")
        if self._random.random() < _REFUSED / 2:
            raise IteratorExpiredError(
                "expired", operation="GetRecords", code="ExpiredIteratorException", request_id=None
            )
        of, begin = self.shards[shard.shard_id], int(shard_iterator)
        is_tip = begin >= len(of.numbers)
        # An answer may be empty although there are records.
        count = 0 if not is_tip and self._random.random() < _REFUSED else limit
        end = min(begin + count, len(of.numbers))
        lag = 0.0
        if end < len(of.numbers):
            lag = max(0.001, self._now() - of.arrivals[max(begin, end - 1)])
        return RecordPage(
            payloads=[b"." * 50] * (end - begin),
            partition_keys=["key"] * (end - begin),
            sequence_numbers=list(map(str, of.numbers[begin:end])),
            arrival_epoch_seconds=of.arrivals[begin:end],
            next_shard_iterator=None if of.is_closed and end == len(of.numbers) else str(end),
            millis_behind_latest=int(lag * 1000),
        )

    def _refuse_sometimes(self, operation: str) -> None:
        if self._random.random() < _REFUSED:
            raise ThroughputExceededError(
                "slow down",
                operation=operation,
                code="ProvisionedThroughputExceededException",
                request_id=None,
            )

    async def describe_stream_consumer(self, stream_arn: str, consumer_name: str) -> NoReturn:
        raise NotImplementedError

    async def list_stream_consumers(self, stream_arn: str) -> NoReturn:
        raise NotImplementedError

    async def register_stream_consumer(self, stream_arn: str, consumer_name: str) -> NoReturn:
        raise NotImplementedError

    async def deregister_stream_consumer(self, consumer_arn: str) -> NoReturn:
        raise NotImplementedError

    def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> NoReturn:
        raise NotImplementedError
