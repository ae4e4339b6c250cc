"""Which shard a record will go to, and the key that decides it where the record has none."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from kinesis_publishers.abc import Partitioner
from kinesis_publishers.model import HashRange, Shard, ShardKey


@frozen(eq=False)
class ShardMap:
    """The open shards of a stream, in the order of their hash keys.

    Attributes:
        open_shards: what records go to.
        ranges: the hash keys of each shard that is known, by its id, closed ones included.
        open_keys: the keys of the open shards.
    """

    open_shards: tuple[Shard, ...]
    ranges: Mapping[str, HashRange]
    open_keys: frozenset[ShardKey] = field(init=False)
    _starts: tuple[int, ...] = field(init=False)

    @open_keys.default
    def _find_keys(self) -> frozenset[ShardKey]:
        return frozenset(one.key for one in self.open_shards)

    @_starts.default
    def _find_starts(self) -> tuple[int, ...]:
        return tuple(int(one.starting_hash_key) for one in self.open_shards)

    @classmethod
    def of(cls, shards: Iterable[Shard]) -> ShardMap:
        """Return the map of a listing."""
        shards = tuple(shards)
        open_shards = [one for one in shards if not one.is_closed]
        open_shards.sort(key=lambda one: int(one.starting_hash_key))
        return cls(tuple(open_shards), {one.shard_id: HashRange.of(one) for one in shards})

    def shard_of(self, hash_key: int) -> Shard:
        """Return the shard for ``hash_key``; there must be an open one.

        A listing may have a hole while a stream is resharded: the shard before it is returned, and
        the answer to what is sent there tells the true one.
        """
        return self.open_shards[max(0, bisect_right(self._starts, hash_key) - 1)]


class RandomPartitioner(Partitioner):
    """Spreads records evenly over the shards, whatever they contain."""

    def keys_of(self, data: bytes) -> tuple[str, str | None]:
        return f"{random.getrandbits(64):016x}", None
