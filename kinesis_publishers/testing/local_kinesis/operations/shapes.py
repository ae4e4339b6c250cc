"""Shards and what is left of them, as the answers show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.shard import Page, Shard
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["child_shards_of", "millis_behind", "shard_shape"]

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


def child_shards_of(stream: Stream, shard: Shard) -> list[dict[str, object]]:
    """Return the ChildShards of the last page of a closed shard."""
    children = (stream.shards.get(child_id) for child_id in shard.child_ids)
    return [
        {
            "ShardId": child.shard_id,
            "ParentShards": list(child.parent_ids),
            "HashKeyRange": _hash_key_range(child),
        }
        for child in children
        if child is not None
    ]


def millis_behind(page: Page, now_ms: int) -> int:
    """Return the MillisBehindLatest of a page."""
    if page.next_arrival_ms is None:
        return 0
    # Zero would say that there is nothing left, even to a reader who came in the same millisecond.
    return max(1, now_ms - page.next_arrival_ms)


def _hash_key_range(shard: Shard) -> dict[str, str]:
    return {
        "StartingHashKey": str(shard.first_hash_key),
        "EndingHashKey": str(shard.last_hash_key),
    }
