"""Shards that fail in a known way; each wraps the shard that answers otherwise."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kinesis_publishers.errors import IteratorExpiredError, ThroughputExceededError
from kinesis_publishers.testing.fakes.shard_behaviour import Answer, ShardBehaviour

if TYPE_CHECKING:
    from kinesis_publishers.model import StartingPosition

__all__ = ["ExpiringIterators", "FailingCalls", "ThrottledCalls"]


class FailingCalls(ShardBehaviour):
    """Fails the first calls with given errors, one each, and then answers.

    Args:
        shard: what answers afterwards.
        on_locate: the errors of the first GetShardIterator calls; ``None`` lets one through.
        on_read: the errors of the first GetRecords calls; ``None`` lets one through.
    """

    def __init__(
        self,
        shard: ShardBehaviour,
        *,
        on_locate: tuple[Exception | None, ...] = (),
        on_read: tuple[Exception | None, ...] = (),
    ) -> None:
        self._shard = shard
        self._on_locate = deque(on_locate)
        self._on_read = deque(on_read)

    async def locate(self, position: StartingPosition) -> int:
        _raise_next(self._on_locate)
        return await self._shard.locate(position)

    async def read(self, index: int, limit: int) -> Answer:
        _raise_next(self._on_read)
        return await self._shard.read(index, limit)


class ThrottledCalls(FailingCalls):
    """Refuses the first GetRecords calls because the read quota of the shard is used up.

    Args:
        shard: what answers afterwards.
        times: how many calls are refused.
    """

    def __init__(self, shard: ShardBehaviour, *, times: int) -> None:
        refusal = ThroughputExceededError(
            "GetRecords: ProvisionedThroughputExceededException: Rate exceeded for shard.",
            operation="GetRecords",
            code="ProvisionedThroughputExceededException",
        )
        super().__init__(shard, on_read=(refusal,) * times)


class ExpiringIterators(ShardBehaviour):
    """Lets an iterator expire, once, and fails the test if it is not replaced before the next call.

    Args:
        shard: what answers otherwise.
        after: how many GetRecords are answered first.
    """

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


def _raise_next(errors: deque[Exception | None]) -> None:
    error = errors.popleft() if errors else None
    if error is not None:
        raise error
