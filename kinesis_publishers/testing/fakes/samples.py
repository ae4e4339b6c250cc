"""Sample shards, records and batches: plain values, always the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from kinesis_publishers.aggregation import expand, pack_user_records
from kinesis_publishers.model import ChildShard, Record, RecordBatch, Shard, UserRecord
from kinesis_publishers.testing.fakes.shards import Answer

__all__ = [
    "STREAM_ARN",
    "SUCCESSOR",
    "batch_of",
    "sample_aggregates",
    "sample_records",
    "sample_shard",
    "shard_name",
    "deaggregated",
]

STREAM_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ARRIVAL = datetime(2026, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
# AWS's numbers have 56 digits; these differ in length below and above 1000, like real ones may.
_FIRST_SEQUENCE_NUMBER = 991


def shard_name(number: int) -> str:
    """Return the id that AWS gives the shard ``number``."""
    return f"shardId-{number:012d}"


#: The child shard that the last answer of every closed shard of the fakes announces.
SUCCESSOR = ChildShard(
    shard_id=shard_name(1),
    parent_shard_ids=(shard_name(0),),
    starting_hash_key="0",
    ending_hash_key=str(2**128 - 1),
)


def sample_shard(
    number: int = 0,
    *,
    parent: int | None = None,
    adjacent_parent: int | None = None,
    is_closed: bool = False,
    stream_arn: str = STREAM_ARN,
) -> Shard:
    """Return a shard of the stream ``orders``; its parents are named by their numbers."""
    return Shard(
        stream_arn=stream_arn,
        shard_id=shard_name(number),
        parent_shard_id=None if parent is None else shard_name(parent),
        adjacent_parent_shard_id=None if adjacent_parent is None else shard_name(adjacent_parent),
        ending_sequence_number="9" * 30 if is_closed else None,
    )


def sample_records(
    count: int,
    *,
    first: int = 0,
    shard: Shard | None = None,
    size: int = 10,
    arrival: datetime = _ARRIVAL,
) -> list[Record]:
    """Return ``count`` records of one shard that arrived one second apart.

    Args:
        count: the number of records.
        first: the index of the first one: ``sample_records(2, first=3)`` continues
            ``sample_records(3)``.
        shard: the shard that holds them; shard 0 by default.
        size: the length of each payload, in bytes.
        arrival: when the record of index 0 arrived (aware).
    """
    shard = shard or sample_shard()
    start = (arrival - _EPOCH) / _SECOND
    return [
        Record(
            data=str(index).encode().rjust(size, b".")[-size:] if size else b"",
            partition_key=f"key-{index}",
            sequence_number=str(_FIRST_SEQUENCE_NUMBER + index),
            arrival_epoch_seconds=start + index,
            encryption_type=None,
            shard_id=shard.shard_id,
            stream_name=shard.stream_name,
        )
        for index in range(first, first + count)
    ]


def sample_aggregates(count: int, children: int, *, shard: Shard | None = None) -> list[Record]:
    """Return ``count`` aggregates of ``children`` user records each, as the KPL puts them.

    They stand where :func:`sample_records` stand; :func:`deaggregated` returns what is inside.
    """
    return [
        outer._replace(data=_aggregate(outer, children), partition_key="a")
        for outer in sample_records(count, shard=shard)
    ]


def _aggregate(outer: Record, children: int) -> bytes:
    keys = [f"{outer.partition_key}-{index}" for index in range(children)]
    records = [UserRecord(data=f"{key}: data".encode(), partition_key=key) for key in keys]
    packed = pack_user_records(records, max_bytes=10 * 1024 * 1024)
    return packed.data


def deaggregated(records: Sequence[Record]) -> list[Record]:
    """Return ``records`` as they are delivered: user records in the place of each aggregate."""
    return list(expand(batch_of(records)).batch)


def batch_of(
    records: Sequence[Record],
    *,
    shard: Shard | None = None,
    requested_at: datetime = _ARRIVAL,
    millis_behind_latest: int | None = 0,
) -> RecordBatch:
    """Return ``records`` as one delivery of a publisher."""
    page = Answer(
        records=records, next_index=None, millis_behind_latest=millis_behind_latest
    ).as_page(None)
    return RecordBatch.from_page(page, shard=shard or sample_shard(), requested_at=requested_at)
