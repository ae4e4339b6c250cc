"""Writing, reading and trimming a stream in the process, past limits and HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson
import pybase64
from attrs import frozen

from kinesis_publishers.testing.local_kinesis.shard import hash_of_partition_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_publishers.testing.local_kinesis.state import Account

__all__ = ["StoredRecord", "read_records", "trim_stream", "write_records"]


@frozen
class StoredRecord:
    """A record as the server keeps it."""

    sequence_number: str
    partition_key: str
    data: bytes
    arrival_time: datetime


def write_records(
    account: Account, stream: str, records: Iterable[tuple[str, bytes]]
) -> list[tuple[str, str]]:
    """Store (partition key, data) pairs; return the shard id and sequence number of each."""
    found = account.find_readable(stream)
    now_ms = account.now_ms()
    stored: list[tuple[str, str]] = []
    for key, data in records:
        shard = found.route(hash_of_partition_key(key))
        number = shard.append(
            pybase64.b64encode(data).decode(),
            orjson.dumps(key).decode(),
            len(data) + len(key.encode()),
            now_ms,
        )
        stored.append((shard.shard_id, str(number)))
    return stored


def read_records(account: Account, stream: str) -> dict[str, list[StoredRecord]]:
    """Return the records of every retained shard, oldest first."""
    found = account.find(stream)
    return {
        shard.shard_id: [_stored_record(fragment) for fragment in shard.fragments]
        for shard in found.retained_shards(account.now_ms())
    }


def _stored_record(fragment: bytes) -> StoredRecord:
    fields = orjson.loads(fragment)
    return StoredRecord(
        fields["SequenceNumber"],
        fields["PartitionKey"],
        pybase64.b64decode(fields["Data"]),
        datetime.fromtimestamp(fields["ApproximateArrivalTimestamp"], UTC),
    )


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
            del found.shards[shard.shard_id]
    return removed
