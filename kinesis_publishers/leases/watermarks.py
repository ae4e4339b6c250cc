"""What the rows of an application say about the watermarks of its workers: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from attrs import evolve

from kinesis_publishers.engine.alignment import Front, common_instant
from kinesis_publishers.leases.rules import Rows, lease_of
from kinesis_publishers.model import Lease, ShardKey, StoredCheckpoint


def with_front(lease: Lease, front: Front | None) -> Lease:
    """Return a lease that tells other workers where its shard is; nothing is known of ``None``."""
    if front is None:
        return lease
    # What is left out of the row can be read by earlier versions.
    return evolve(
        lease,
        watermark=front.until,
        is_idle=front.is_idle or None,
        is_at_tip=front.is_at_tip or None,
    )


def watermark_of(rows: Rows, key: ShardKey) -> datetime | None:
    """Return where the last reader of a shard was; one that has none is where its parents ended."""
    row = rows.get(key)
    if row is None or (known := lease_of(row).watermark) is not None:
        return None if row is None else known
    ended = [lease_of(one).watermark for one in _parents(rows, key, row)]
    return common_instant(map(Front, ended))


def open_fronts(
    rows: Rows, own: Collection[ShardKey], is_free: Callable[[ShardKey], bool]
) -> list[Front]:
    """Return where the shards are that are not this worker's and have not ended.

    Those whose parents have not ended come after these. What no live worker reads is not idle,
    whatever its last one has said.
    """
    return [
        Front(watermark_of(rows, key))
        if is_free(key)
        else Front(
            watermark_of(rows, key), bool(lease_of(row).is_idle), bool(lease_of(row).is_at_tip)
        )
        for key, row in rows.items()
        if key not in own
        and not row.checkpoint.progress.is_ended
        and all(one.checkpoint.progress.is_ended for one in _parents(rows, key, row))
    ]


def _parents(rows: Rows, key: ShardKey, row: StoredCheckpoint) -> list[StoredCheckpoint]:
    keys = (ShardKey(key.stream_arn, one) for one in lease_of(row).parents)
    return [rows[one] for one in keys if one in rows]
