"""Predicts the shard of a record, and chooses the partition key of records without one."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, field, frozen

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.model import HashRange, Shard, ShardKey
from kinesis_publishers.model.shards import MAX_HASH_KEY


@frozen(eq=False)
class ShardMap:
    """The open shards of a stream, in the order of their hash keys.

    A listing may have a hole during a reshard. The hole counts as a shard: its records are never
    packed together with those of other shards, and the answers name their real shard. A stream that
    distributes records itself has one shard here, which stands for all: nothing is predicted.

    Attributes:
        open_shards: the shards that take records; empty if none is listed.
        ranges: the hash keys of each known shard by its id, including closed ones.
        choices: the number of shards among which the service chooses; 0 if keys decide.
    """

    open_shards: tuple[Shard, ...]
    ranges: Mapping[str, HashRange]
    choices: int = 0
    # Each record that arrives in another shard than predicted asks for these.
    open_keys: frozenset[ShardKey] = field(init=False)
    _starts: tuple[int, ...] = field(init=False)

    @open_keys.default
    def _find_keys(self) -> frozenset[ShardKey]:
        return frozenset(one.key for one in self.open_shards)

    @_starts.default
    def _find_starts(self) -> tuple[int, ...]:
        return tuple(int(one.starting_hash_key) for one in self.open_shards)

    @classmethod
    def of(cls, shards: Iterable[Shard], *, is_auto: bool = False) -> ShardMap:
        """Return the map of a listing; with ``is_auto`` the stream distributes records itself."""
        shards = tuple(shards)
        open_shards = [one for one in shards if not one.is_closed]
        ranges = {one.shard_id: HashRange.of(one) for one in shards}
        if is_auto and open_shards:
            count = len(open_shards)
            every = evolve(_hole(open_shards[0], 0, MAX_HASH_KEY), shard_id=f"(any of {count})")
            return cls((every,), ranges, count)
        open_shards.sort(key=lambda one: int(one.starting_hash_key))
        return cls(tuple(_without_holes(open_shards)), ranges)

    @classmethod
    async def listed(cls, services: WritingServices) -> ShardMap:
        """Return the map of a stream, with the distribution of its last description."""
        shards = await services.list_shards()
        return cls.of(shards, is_auto=services.stream.is_auto_distributed)

    def shard_of(self, hash_key: int) -> Shard:
        """Return the shard of ``hash_key``; there must be an open shard."""
        return self.open_shards[bisect_right(self._starts, hash_key) - 1]


def _without_holes(shards: Iterable[Shard]) -> Iterator[Shard]:
    """Yield sorted shards, and one for each hole between them."""
    first = 0
    shard: Shard | None = None
    for shard in shards:
        if (start := int(shard.starting_hash_key)) > first:
            yield _hole(shard, first, start - 1)
        yield shard
        first = max(first, int(shard.ending_hash_key) + 1)
    if shard is not None and first <= MAX_HASH_KEY:
        yield _hole(shard, first, MAX_HASH_KEY)


def _hole(neighbour: Shard, first: int, last: int) -> Shard:
    return Shard(
        stream_arn=neighbour.stream_arn,
        shard_id=f"(a shard that is not listed, from hash key {first})",
        starting_hash_key=str(first),
        ending_hash_key=str(last),
    )


class RandomKey(str):
    """A partition key that only selects a shard; it is left out where the service does that.

    The record keeps the key, because the stream may need keys again before the write.
    """

    __slots__ = ()


class RandomPartitioner(Partitioner):
    """Spreads records evenly over the shards, for any content."""

    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        return RandomKey(f"{random.getrandbits(64):016x}"), None
