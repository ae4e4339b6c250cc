"""Shards as the answers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.shard import Shard

__all__ = ["child_shard_shape", "shard_shape"]

_PARENT_MEMBERS = ("ParentShardId", "AdjacentParentShardId")


def shard_shape(shard: Shard) -> dict[str, object]:
    """Return the ``Shard`` of ListShards and DescribeStream."""
    numbers = {"StartingSequenceNumber": str(shard.space.starting())}
    if shard.ending_number is not None:
        numbers["EndingSequenceNumber"] = str(shard.ending_number)
    shape: dict[str, object] = {
        "ShardId": shard.shard_id,
        "HashKeyRange": _hash_key_range(shard),
        "SequenceNumberRange": numbers,
    }
    # Parents are named even when they have left the retention, as AWS does.
    return shape | dict(zip(_PARENT_MEMBERS, shard.parent_ids, strict=False))


def child_shard_shape(shard: Shard) -> dict[str, object]:
    """Return the ``ChildShard`` with which the last answer of a closed shard names its children."""
    return {
        "ShardId": shard.shard_id,
        "ParentShards": list(shard.parent_ids),
        "HashKeyRange": _hash_key_range(shard),
    }


def _hash_key_range(shard: Shard) -> dict[str, str]:
    return {
        "StartingHashKey": str(shard.first_hash_key),
        "EndingHashKey": str(shard.last_hash_key),
    }
