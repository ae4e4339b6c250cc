"""The assigners without leases: every shard, or the configured shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from attrs import frozen

from kinesis_publishers.abc import ShardAssigner
from kinesis_publishers.config import AssignmentConfig, Properties
from kinesis_publishers.errors import InvalidOptionError
from kinesis_publishers.model import Shard


class AllShards(ShardAssigner):
    """Reads every shard."""


@frozen
class NamedShards(ShardAssigner):
    """Reads the shards of ``kinesis.shards``: ids, by the name of their stream."""

    _names: frozenset[tuple[str, str]]

    @classmethod
    def from_properties(cls, properties: Properties) -> Self:
        return cls(frozenset(AssignmentConfig.from_properties(properties).shards))

    def check_listing(self, listed: Sequence[Shard]) -> None:
        there = {(one.stream_name, one.shard_id) for one in listed}
        streams = {name for name, _ in there}
        if missing := sorted(one for one in self._names - there if one[0] in streams):
            raise InvalidOptionError(
                f"kinesis.shards names {', '.join(map(':'.join, missing))}, which is not there: "
                f"there are {', '.join(map(':'.join, sorted(there))):.500}"
            )

    def reads(self, shard: Shard) -> bool:
        return (shard.stream_name, shard.shard_id) in self._names
