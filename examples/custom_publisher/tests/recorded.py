"""Recordings to test with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kinesis_publishers.testing.fakes import batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kinesis_publishers import Record, Shard

__all__ = ["SPARK_NAMES", "record", "replaying"]

SPARK_NAMES = [
    "data",
    "streamName",
    "shardId",
    "sequenceNumber",
    "partitionKey",
    "approximateArrivalTimestamp",
    "subSequenceNumber",
]


def record(
    directory: Path, shard: Shard, records: Sequence[Record], *, names: list[str] | None = None
) -> None:
    """Write ``records`` as another file of a recording."""
    table = pa.Table.from_batches([batch_of(records, shard=shard).to_arrow()])
    table = table.rename_columns(names or table.column_names)
    directory.mkdir(exist_ok=True)
    pq.write_table(table, directory / f"{len(list(directory.iterdir()))}.parquet")


def replaying(path: Path, **custom: str) -> dict[str, str]:
    """Return the properties of a replay."""
    return {
        "kinesis.streams": "orders",
        "kinesis.stream.initpos": "TRIM_HORIZON",
        "kinesis.stream.recordpublisher": "replay",
        "kinesis.custom.replay.path": str(path),
        **{f"kinesis.custom.replay.{key}": value for key, value in custom.items()},
    }
