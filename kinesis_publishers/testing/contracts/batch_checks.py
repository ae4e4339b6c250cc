"""What is checked of the batches that a publisher delivers, and of all its records together."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kinesis_publishers.model import Record, RecordBatch, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["assert_same_records", "check_batch"]

_ARRIVAL_SECONDS = 0.001


def assert_same_records(
    delivered: Sequence[Record], expected: Sequence[Record], *, advice: str
) -> None:
    """Check that exactly ``expected`` was delivered; the message says what differs, and why.

    Arrival times may differ by a millisecond.
    """
    got, wanted = [_shown(one) for one in delivered], [_shown(one) for one in expected]
    assert got == wanted, f"{advice}\n  delivered: {got}\n  expected:  {wanted}"
    for one, other in zip(delivered, expected, strict=True):
        arrival, wanted_arrival = one.arrival_epoch_seconds, other.arrival_epoch_seconds
        # A service may round to milliseconds.
        assert abs(arrival - wanted_arrival) <= _ARRIVAL_SECONDS, (
            f"record {one.sequence_number} was delivered with arrival_epoch_seconds {arrival!r} "
            f"instead of {wanted_arrival!r}: it is when the record arrived, in seconds since 1970"
        )


def _shown(record: Record) -> tuple[str, str, bytes]:
    return record.sequence_number, record.partition_key, record.data[:64]


def check_batch(batch: object, shard: Shard) -> None:
    """Fail the test for a batch of ``shard`` that contradicts itself."""
    assert isinstance(batch, RecordBatch), f"{batch!r} was delivered, which is no RecordBatch"
    assert batch.shard.key == shard.key, (
        f"a batch of {batch.shard} was delivered by the publisher of {shard}: set RecordBatch.shard"
    )
    _check_columns(batch)
    numbers = [int(one) for one in batch.sequence_numbers]
    assert all(one < other for one, other in pairwise(numbers)), (
        f"the sequence numbers of a batch do not increase (compared as integers): {numbers}"
    )
    assert batch.requested_at.tzinfo is not None, "requested_at must have a time zone (UTC)"
    lag: Any = batch.millis_behind_latest
    assert lag is None or (isinstance(lag, int) and lag >= 0), (
        f"millis_behind_latest is {lag!r}: it is a number of milliseconds, or None if unknown"
    )


def _check_columns(batch: RecordBatch) -> None:
    columns: dict[str, tuple[Sequence[object], type | tuple[type, ...]]] = {
        "payloads": (batch.payloads, bytes),
        "partition_keys": (batch.partition_keys, str),
        "sequence_numbers": (batch.sequence_numbers, str),
        "arrival_epoch_seconds": (batch.arrival_epoch_seconds, (int, float)),
    }
    if batch.encryption_types is not None:
        columns["encryption_types"] = (batch.encryption_types, (str, type(None)))
    for name, (values, kinds) in columns.items():
        assert len(values) == len(batch), (
            f"a batch has {len(batch)} payloads and {len(values)} {name}: one of each per record"
        )
        wrong = [value for value in values if not isinstance(value, kinds)]
        assert not wrong, f"{name} of a batch has {wrong[0]!r}, of type {type(wrong[0]).__name__}"
