"""What GetRecords and SubscribeToShard say about a page of records besides the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.operations.shapes import child_shard_shape

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.shard import Page, Shard
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["child_shards_of", "millis_behind"]


def millis_behind(page: Page, now_ms: int) -> int:
    """Return the MillisBehindLatest of a page."""
    if page.next_arrival_ms is None:
        return 0
    # Zero would say that there is nothing left, even to a reader who came in the same millisecond.
    return max(1, now_ms - page.next_arrival_ms)


def child_shards_of(stream: Stream, shard: Shard) -> list[dict[str, object]]:
    """Return the ChildShards of the last page of a closed shard."""
    return [
        child_shard_shape(stream.shards[child_id])
        for child_id in shard.child_ids
        if child_id in stream.shards
    ]
