"""The job of the demo: a query from Kinesis into Parquet, and what is computed from its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import orjson
import pyarrow.parquet as pq
from attrs import define, field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kinesis_publishers_spark.demo.flights import CarrierDelays, FlightRecord

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def start_query(
    spark: SparkSession, properties: Mapping[str, str], directory: Path
) -> StreamingQuery:
    """Start reading the stream from its beginning into Parquet files below ``directory``."""
    flight = F.from_json(F.col("data").cast("string"), "carrier string, dep_delay int")
    return (
        spark.readStream.format("kinesis")
        .options(**properties)
        .option("kinesis.stream.initpos", "TRIM_HORIZON")
        .load()
        .select("data", "partitionKey", flight.alias("flight"))
        # Spark's file sink lists the files of each micro-batch in a log of its own: what a task
        # wrote before it failed is not part of the result.
        .writeStream.format("parquet")
        .option("path", str(directory / "result"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )


@define
class ReadProgress:
    """What the progress reports of a query say, taken together.

    Attributes:
        rows: how many records the finished micro-batches had.
        read_until: what arrived earlier is in finished micro-batches; ``None`` before it is known.
    """

    read_until: datetime | None = None
    _rows_by_batch: dict[int, int] = field(factory=dict)

    @property
    def rows(self) -> int:
        return sum(self._rows_by_batch.values())

    def observe(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """Take in reports, oldest first; one that was seen before changes nothing."""
        for report in reports:
            source = report["sources"][0]
            # A report about an idle trigger carries the number of the batch that comes next.
            batch = report["batchId"]
            rows = int(source["numInputRows"])
            self._rows_by_batch[batch] = max(rows, self._rows_by_batch.get(batch, 0))
            if lag := _lag(source["latestOffset"]):
                # Otherwise the micro-batch has everything that had come when it was planned.
                has_more = lag["bufferedRecords"] or lag.get("maxMillisBehindLatest")
                left = timedelta(milliseconds=lag.get("maxLagMillis", 0) if has_more else 0)
                self.read_until = datetime.fromisoformat(report["timestamp"]) - left


def _lag(text: str | None) -> dict[str, int]:
    """Return the lag, which Spark shows as the latest offset; nothing where it has none to show."""
    with suppress(orjson.JSONDecodeError):
        lag: dict[str, int] = orjson.loads(text or "{}")
        if "bufferedRecords" in lag:
            return lag
    return {}  # Spark before 4.2 shows an offset, and not always as JSON.


def read_result(spark: SparkSession, directory: Path) -> DataFrame:
    """Return what the query wrote."""
    return spark.read.parquet(str(directory / "result"))


def compute_delays(result: DataFrame) -> dict[str, CarrierDelays]:
    """Return what the query's result says about each carrier, computed by Spark."""
    delay = F.col("flight.dep_delay")
    rows = (
        result.groupBy(F.col("flight.carrier").alias("carrier"))
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count(delay).alias("departed"),
            F.coalesce(F.sum(delay), F.lit(0)).alias("delay_minutes"),
        )
        .collect()
    )
    return {
        str(row["carrier"]): CarrierDelays(
            flights=row["flights"], departed=row["departed"], delay_minutes=row["delay_minutes"]
        )
        for row in rows
    }


def read_records(result: DataFrame) -> Iterator[FlightRecord]:
    """Yield every record in the query's result, byte for byte; not through Spark's own reader."""
    for url in result.inputFiles():
        with pq.ParquetFile(unquote(urlsplit(url).path)) as file:
            for batch in file.iter_batches(columns=["data", "partitionKey"]):
                keys = batch.column("partitionKey").to_pylist()
                payloads = batch.column("data").to_pylist()
                yield from map(FlightRecord, keys, payloads)
