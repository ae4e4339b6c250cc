"""How shards divide and join: split, merge, and the uniform scaling of UpdateShardCount."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers.testing.local_kinesis.errors import invalid_argument
from kinesis_publishers.testing.local_kinesis.hash_keys import HASH_KEY_COUNT, even_starts

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.shard import Shard
    from kinesis_publishers.testing.local_kinesis.stream import Stream

__all__ = ["check_merge", "check_split", "merge_shards", "scale_shards", "split_shard"]


def split_shard(stream: Stream, shard: Shard, hash_key: int, now_ms: int) -> tuple[Shard, Shard]:
    """Close ``shard`` and open its two children; the second begins at ``hash_key``."""
    second = stream.creation_seconds.next(now_ms)
    parents = (shard.shard_id,)
    lower = stream.add_shard(second, (shard.first_hash_key, hash_key - 1), now_ms, parents)
    upper = stream.add_shard(second, (hash_key, shard.last_hash_key), now_ms, parents)
    shard.close(now_ms, (lower.shard_id, upper.shard_id))
    stream.index_open_shards()
    return lower, upper


def merge_shards(stream: Stream, shard: Shard, adjacent: Shard, now_ms: int) -> Shard:
    """Close both shards and open their one child."""
    hash_keys = (
        min(shard.first_hash_key, adjacent.first_hash_key),
        max(shard.last_hash_key, adjacent.last_hash_key),
    )
    second = stream.creation_seconds.next(now_ms)
    parents = (shard.shard_id, adjacent.shard_id)
    child = stream.add_shard(second, hash_keys, now_ms, parents)
    shard.close(now_ms, (child.shard_id,))
    adjacent.close(now_ms, (child.shard_id,))
    stream.index_open_shards()
    return child


def scale_shards(stream: Stream, count: int, now_ms: int) -> None:
    """Reach ``count`` equal shards by splits and merges, as UNIFORM_SCALING does.

    Every new boundary is split in, then what lies between two new boundaries is merged: a count
    that is no multiple leaves closed, empty shards in the lineage, as AWS does.
    """
    starts = even_starts(count)
    for start in starts:
        shard = stream.route(start)
        if shard.first_hash_key != start:
            split_shard(stream, shard, start, now_ms)
    for first, following in zip(starts, [*starts[1:], HASH_KEY_COUNT], strict=True):
        merged = stream.route(first)
        while merged.last_hash_key + 1 < following:
            adjacent = stream.route(merged.last_hash_key + 1)
            merged = merge_shards(stream, merged, adjacent, now_ms)


def check_split(stream: Stream, shard: Shard, hash_key: int) -> None:
    """Raise InvalidArgumentException unless ``shard`` can be split at ``hash_key``."""
    _check_open(stream, shard)
    if not shard.first_hash_key + 1 < hash_key < shard.last_hash_key:
        raise invalid_argument(
            f"NewStartingHashKey {hash_key} used in SplitShard() on shard {shard.shard_id} in "
            f"stream {stream.name} under account {stream.account_id} is not both greater than one "
            f"plus the shard's StartingHashKey {shard.first_hash_key} and less than the shard's "
            f"EndingHashKey {shard.last_hash_key}."
        )


def check_merge(stream: Stream, shard: Shard, adjacent: Shard) -> None:
    """Raise InvalidArgumentException unless the two are open neighbours."""
    _check_open(stream, shard)
    _check_open(stream, adjacent)
    if (
        shard.last_hash_key + 1 != adjacent.first_hash_key
        and adjacent.last_hash_key + 1 != shard.first_hash_key
    ):
        raise invalid_argument(
            f"Shards {shard.shard_id} and {adjacent.shard_id} in stream {stream.name} under "
            f"account {stream.account_id} are not an adjacent pair of shards eligible for merging"
        )


def _check_open(stream: Stream, shard: Shard) -> None:
    if not shard.is_open:
        raise invalid_argument(
            f"Shard {shard.shard_id} in stream {stream.name} under account {stream.account_id} has "
            "already been merged or split, and thus is not eligible for merging or splitting."
        )
