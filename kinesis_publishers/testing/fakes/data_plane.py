"""A data plane without a service: it hands out iterators, checks them and remembers the calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from kinesis_publishers.abc import DataPlane
from kinesis_publishers.testing.fakes.subscriptions import FakeSubscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesis_publishers.model import RecordPage, Shard, ShardKey, StartingPosition
    from kinesis_publishers.testing.fakes.shard_behaviour import ShardBehaviour

__all__ = ["FakeDataPlane", "IteratorCall", "RecordsCall", "SubscribeCall"]


@frozen(kw_only=True)
class IteratorCall:
    """A GetShardIterator that was made."""

    shard_id: str
    position: StartingPosition


@frozen(kw_only=True)
class RecordsCall:
    """A GetRecords that was made, answered or not.

    Attributes:
        index: the record at which the iterator stood.
    """

    shard_id: str
    shard_iterator: str
    limit: int
    index: int


@frozen(kw_only=True)
class SubscribeCall:
    """A SubscribeToShard that was made, accepted or not."""

    shard_id: str
    consumer_arn: str
    position: StartingPosition


class FakeDataPlane(DataPlane):
    """Answers as the behaviours of its shards say.

    Iterators are strings of which each is used as the service would: one that was not handed out
    fails the test.

    Args:
        shards: the behaviour of each shard, by shard id; or one behaviour, for whatever shard is
            asked for.
    """

    def __init__(self, shards: Mapping[str, ShardBehaviour] | ShardBehaviour) -> None:
        self._shards = shards
        self._iterators: dict[str, tuple[ShardKey, int]] = {}
        #: Every call, in order.
        self.calls: list[IteratorCall | RecordsCall | SubscribeCall] = []
        #: Every subscription that was accepted, in order.
        self.subscriptions: list[FakeSubscription] = []

    @property
    def iterator_calls(self) -> list[IteratorCall]:
        """Every GetShardIterator, in order."""
        return [call for call in self.calls if isinstance(call, IteratorCall)]

    @property
    def records_calls(self) -> list[RecordsCall]:
        """Every GetRecords, in order."""
        return [call for call in self.calls if isinstance(call, RecordsCall)]

    @property
    def subscribe_calls(self) -> list[SubscribeCall]:
        """Every SubscribeToShard, in order."""
        return [call for call in self.calls if isinstance(call, SubscribeCall)]

    def behaviour_of(self, shard_id: str) -> ShardBehaviour:
        """Return what decides the answers of a shard."""
        if not isinstance(self._shards, Mapping):
            return self._shards
        assert shard_id in self._shards, f"nobody was expected to read {shard_id}"
        return self._shards[shard_id]

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        self.calls.append(IteratorCall(shard_id=shard.shard_id, position=position))
        return self._iterator_at(shard, await self.behaviour_of(shard.shard_id).locate(position))

    async def get_records(self, shard: Shard, shard_iterator: str, limit: int) -> RecordPage:
        assert shard_iterator in self._iterators, f"{shard_iterator} was never handed out"
        key, index = self._iterators[shard_iterator]
        assert key == shard.key, f"{shard_iterator} belongs to {key}, not to {shard}"
        assert 1 <= limit <= 10_000, f"Limit must be 1 to 10,000, not {limit}"
        self.calls.append(
            RecordsCall(
                shard_id=shard.shard_id, shard_iterator=shard_iterator, limit=limit, index=index
            )
        )
        answer = await self.behaviour_of(shard.shard_id).read(index, limit)
        following = answer.next_index
        return answer.as_page(None if following is None else self._iterator_at(shard, following))

    @asynccontextmanager
    async def subscribe_to_shard(
        self, shard: Shard, consumer_arn: str, position: StartingPosition
    ) -> AsyncIterator[FakeSubscription]:
        self.calls.append(
            SubscribeCall(shard_id=shard.shard_id, consumer_arn=consumer_arn, position=position)
        )
        behaviour = self.behaviour_of(shard.shard_id)
        await behaviour.accept(consumer_arn, position)
        subscription = FakeSubscription(behaviour.subscribe(position))
        self.subscriptions.append(subscription)
        try:
            yield subscription
        finally:
            subscription.is_closed = True

    def _iterator_at(self, shard: Shard, index: int) -> str:
        token = f"iterator-{len(self._iterators) + 1}-of-{shard.shard_id}"
        self._iterators[token] = shard.key, index
        return token
