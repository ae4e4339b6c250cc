"""Finds the rows of a shard in Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from attrs import frozen

from kinesis_publishers.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kinesis_publishers import Shard

__all__ = ["RecordedShard", "Recording"]

# The columns of RecordBatch.to_arrow(), and their names in the Spark source.
_COLUMNS = {
    "data": "data",
    "stream_name": "streamName",
    "shard_id": "shardId",
    "sequence_number": "sequenceNumber",
    "partition_key": "partitionKey",
    "approximate_arrival_timestamp": "approximateArrivalTimestamp",
}


@frozen(kw_only=True)
class RecordedShard:
    """The rows of one shard, in the order of their sequence numbers, as columns."""

    payloads: Sequence[bytes] = ()
    partition_keys: Sequence[str] = ()
    sequence_numbers: Sequence[str] = ()
    arrival_epoch_seconds: Sequence[float] = ()


class Recording:
    """Parquet files with the records of one or more streams; opening it reads only their schema.

    Args:
        path: a file, or a directory of them.

    Raises:
        InvalidOptionError: there are no such files, or they have other columns.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._dataset = ds.dataset(path, format="parquet")
            self._names = _column_names(self._dataset.schema)
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            raise InvalidOptionError(
                f"kinesis.custom.replay.path: {path} is no recording: {error}"
            ) from error

    def shard_ids(self, stream_name: str) -> set[str]:
        """Return the shards that have rows of a stream."""
        column = self._names["shard_id"]
        rows = self._dataset.to_table(columns=[column], filter=self._of_stream(stream_name))
        return set(pc.unique(rows[column]).to_pylist())

    def read(self, shard: Shard) -> RecordedShard:
        """Return the rows of a shard, each sequence number once.

        Raises:
            InvalidOptionError: different rows have one sequence number.
        """
        names = self._names
        wanted = self._of_stream(shard.stream_name) & (
            ds.field(names["shard_id"]) == shard.shard_id
        )
        rows = self._dataset.to_table(columns=list(names.values()), filter=wanted)
        numbers = rows[names["sequence_number"]].to_pylist()
        order = _order(shard, numbers, rows[names["data"]].to_pylist())
        rows = rows.take(pa.array(order, pa.int64()))
        arrivals = rows[names["approximate_arrival_timestamp"]].cast(pa.timestamp("us", "UTC"))
        return RecordedShard(
            payloads=rows[names["data"]].to_pylist(),
            partition_keys=rows[names["partition_key"]].to_pylist(),
            sequence_numbers=rows[names["sequence_number"]].to_pylist(),
            arrival_epoch_seconds=[one / 1e6 for one in arrivals.cast(pa.int64()).to_pylist()],
        )

    def _of_stream(self, stream_name: str) -> ds.Expression:
        return ds.field(self._names["stream_name"]) == stream_name


def _order(shard: Shard, numbers: Sequence[str], payloads: Sequence[bytes]) -> list[int]:
    """Return the rows in the order of their sequence numbers; of equal ones the first."""
    first_rows: dict[int, int] = {}
    for row, text in enumerate(numbers):
        # Compared as integers: they are texts of different length.
        first = first_rows.setdefault(int(text), row)
        if payloads[first] != payloads[row]:
            raise InvalidOptionError(
                f"kinesis.custom.replay.path: several rows of {shard} have the sequence number "
                f"{text}, as records from inside an aggregate do. Record the stream with "
                "kinesis.aggregation = off: aggregates are deaggregated when they are replayed"
            )
    return [first_rows[number] for number in sorted(first_rows)]


def _column_names(schema: pa.Schema) -> dict[str, str]:
    for names in ({name: name for name in _COLUMNS}, _COLUMNS):
        if set(names.values()) <= set(schema.names):
            return names
    missing = sorted(set(_COLUMNS) - set(schema.names))
    raise ValueError(f"the columns {', '.join(missing)} are missing (there are {schema.names})")
