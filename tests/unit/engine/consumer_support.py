"""Short names for what most tests of the shard consumer say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers import SequenceNumber, ShardProgress, StartingPosition
from kinesis_publishers.testing.fakes import (
    ScriptedPublisherFactory,
    ScriptedRun,
    ShardReader,
    batch_of,
    sample_records,
)

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["RECORDS", "after", "at", "place", "reader_of", "run_of"]

RECORDS = sample_records(10)


def place(index: int, sub: int | None = None) -> SequenceNumber:
    """Return the place of the sample record ``index``."""
    return SequenceNumber(RECORDS[index].sequence_number, sub)


def after(index: int, *, as_of: datetime | None = None) -> ShardProgress:
    """Return the progress of a reader that has read up to the sample record ``index``."""
    return ShardProgress(position=StartingPosition.after(place(index)), as_of=as_of)


def at(index: int, sub: int | None = None) -> ShardProgress:
    """Return progress whose next record is the sample record ``index``."""
    return ShardProgress(position=StartingPosition.at(place(index, sub)))


def run_of(*batches: tuple[int, int], lag: int | None = 0, error: Exception | None = None):
    """Return a run that delivers slices of the sample records."""
    return ScriptedRun(
        batches=[batch_of(RECORDS[a:b], millis_behind_latest=lag) for a, b in batches],
        error=error,
    )


def reader_of(*runs: ScriptedRun, **settings: object) -> ShardReader:
    """Return a reader whose one publisher does ``runs``, after which the shard has ended."""
    return ShardReader(factory=ScriptedPublisherFactory(runs), **settings)
