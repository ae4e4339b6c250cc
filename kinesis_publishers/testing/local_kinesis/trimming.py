"""Trimming on demand: what retention does with time, done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis.account import Account

__all__ = ["trim_stream"]


def trim_stream(
    account: Account,
    stream: str,
    *,
    shard_id: str | None = None,
    through: str | None = None,
    drop_closed_shards: bool = True,
) -> int:
    """Remove records as if they had left the retention; return how many.

    Args:
        account: whose stream it is.
        stream: its name.
        shard_id: only this shard; all of them unless given.
        through: the sequence number of the last record to remove; all records unless given.
        drop_closed_shards: a closed shard that has become empty leaves ListShards, too.
    """
    found = account.find(stream)
    now_ms = account.now_ms()
    shards = found.retained_shards(now_ms) if shard_id is None else [found.shard(shard_id, now_ms)]
    removed = 0
    for shard in shards:
        before = shard.record_count
        shard.trim_through(int(through) if through is not None else shard.last_number)
        removed += before - shard.record_count
        if drop_closed_shards and not shard.is_open and not shard.record_count:
            found.drop_shard(shard.shard_id)
    return removed
