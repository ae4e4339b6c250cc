"""The demo step by step: the server, Spark, the query, the flights, then the comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from attrs import frozen
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from kinesis_publishers import SystemClock
from kinesis_publishers.config import ProducerConfig
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.producing import BlockingProducer
from kinesis_publishers.readers import find_native
from kinesis_publishers_spark.demo import DemoError
from kinesis_publishers_spark.demo.flights import (
    CarrierDelays,
    FlightRecord,
    compare_records,
    find_wrong_carriers,
    load_airlines,
    load_flights,
)
from kinesis_publishers_spark.demo.server import serve_stream
from kinesis_publishers_spark.demo.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kinesis_publishers_spark.demo.report import Report

_STREAM: Final = "flights"
_CLOCK: Final = SystemClock()
_POLL_SECONDS: Final = 0.2
# How much is put at once; between two portions the progress of the query is checked.
_PORTION_RECORDS: Final = 20_000
# The local Kinesis of the demo limits reading alone.
_NO_LIMIT: Final = {ProducerConfig.rate_percent.full_key: 100_000}
# Starting Python workers takes seconds, tens of them on a busy machine.
_START_SECONDS: Final = 150.0
# Longer than anything waits in the query: a stream that is quiet for so long has no more records.
_STALL_SECONDS: Final = 30.0


def run_demo(
    report: Report, check_signals: Callable[[], None], *, shards: int, limit: int | None
) -> bool:
    """Run the demo and say whether what Spark read is exactly what was put.

    It leaves no process and no file behind, however it ends. It keeps calling
    ``check_signals``, which raises to end it. ``limit`` is how many flights to put; ``None`` for
    all.

    Raises:
        DemoError: Spark failed, or the query ended before it was stopped.
        KinesisPublishersError: the flights cannot be put.
    """
    with ExitStack() as stack:
        stack.enter_context(report)
        # A worker that is being killed may still be writing.
        temporary = tempfile.TemporaryDirectory(
            prefix="kinesis-publishers-demo-", ignore_cleanup_errors=True
        )
        directory = Path(stack.enter_context(temporary))
        report.say("Reading the flights, starting a local Kinesis and Spark ...")
        flights = load_flights(limit)
        properties = stack.enter_context(serve_stream(_STREAM, shards))
        check_signals()
        report.begin("starting Spark")
        try:
            spark = stack.enter_context(open_session(directory))
            report.say(
                f"Spark {spark.version} reads the stream {_STREAM!r} with {shards} shards at "
                f"{properties['aws.endpoint']} while {len(flights):,} flights are put into it. "
                f"Records are decoded in {find_native()[1]} ..."
            )
            job = _Job(spark, directory, flights, report, check_signals)
            job.read(properties)
            return job.verify()
        except (PySparkException, Py4JError) as error:
            # Spark's errors get their text from the JVM, which ends with this context. The plan
            # and the offsets, which follow, are long and tell a user nothing.
            text = str(error).partition("\n=== Streaming Query ===")[0]
            raise DemoError(text) from None


@frozen(eq=False)
class _Job:
    """Reads the stream while it is filled, then compares."""

    spark: SparkSession
    directory: Path
    flights: Sequence[FlightRecord]
    report: Report
    check_signals: Callable[[], None]

    def read(self, properties: Mapping[str, str]) -> None:
        """Put all records and wait until the query has read them, or nothing more comes."""
        query = self._start_query(properties)
        try:
            # Not before the query reads: otherwise everything would be there when it begins.
            self._wait_for_first_trigger(query)
            producer = BlockingProducer.from_properties({**properties, **_NO_LIMIT})
            try:
                self._put_and_follow(producer, query)
            finally:
                # What is left when something else has failed is of no use.
                with suppress(RecordsNotWrittenError):
                    producer.close(timeout_seconds=0)
            # Records after the last expected one must be found as well.
            query.processAllAvailable()
        finally:
            query.stop()

    def _start_query(self, properties: Mapping[str, str]) -> StreamingQuery:
        """Start reading the stream from its beginning into Parquet files."""
        flight = F.from_json(F.col("data").cast("string"), "carrier string, dep_delay int")
        return (
            self.spark.readStream.format("kinesis")
            .options(**properties)
            .option("kinesis.stream.initpos", "TRIM_HORIZON")
            .load()
            .select("data", "partitionKey", flight.alias("flight"))
            # Spark's file sink lists the files of each micro-batch in a log of its own: what a task
            # wrote before it failed is not part of the result.
            .writeStream.format("parquet")
            .option("path", str(self.directory / "result"))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .start()
        )

    def _wait_for_first_trigger(self, query: StreamingQuery) -> None:
        deadline = _CLOCK.monotonic() + _START_SECONDS
        while query.lastProgress is None:
            self._wait_a_moment(query)
            if _CLOCK.monotonic() > deadline:
                raise DemoError("The query did not begin to read.")

    def _put_and_follow(self, producer: BlockingProducer, query: StreamingQuery) -> None:
        rows: dict[int, int] = {}
        total = len(self.flights)
        started = last_change = _CLOCK.monotonic()
        handed = put = read = 0
        elapsed = 0.0
        while put < total or read < total:
            # The buffer must have room: a wait for it would hide that the query has failed.
            if producer.pending_records < _PORTION_RECORDS:
                producer.put_many(self.flights[handed : handed + _PORTION_RECORDS])
                handed = min(total, handed + _PORTION_RECORDS)
            self._wait_a_moment(query)
            now, before = _CLOCK.monotonic(), read
            read = _count_rows(query, rows)
            if put < total or read != before:
                last_change = now
            elif now - last_change > _STALL_SECONDS:
                self.report.say(f"Nothing more came for {_STALL_SECONDS:.0f} s.")
                break
            put, elapsed = handed - producer.pending_records, now - started
            if put == total:
                producer.flush()  # It says whether records have been given up.
            self.report.show_progress(total=total, put=put, read=read, elapsed_seconds=elapsed)
        bytes_read = sum(len(data) for data, _ in self.flights) * read / total
        self.report.say(
            f"Read {read:,} records in {elapsed:.1f} s, counted from the first one put: "
            f"{read / elapsed:,.0f} records/s, {bytes_read / elapsed / 1e6:.1f} MB/s. "
            "(AWS's limit on reading, 2 MiB/s for each shard, is kept.)"
        )

    def _wait_a_moment(self, query: StreamingQuery) -> None:
        """Raise the error with which the query failed, if it did."""
        self.check_signals()
        # Fractions of a second work, the annotation does not say so.
        if query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]
            raise DemoError("The query ended before it had read everything.")

    def verify(self) -> bool:
        """Compare every record, and the figures that Spark computes, with the CSV."""
        self.check_signals()
        self.report.begin("comparing")
        result = self.spark.read.parquet(str(self.directory / "result"))
        delays = _compute_delays(result)
        self.report.show_delays(delays, load_airlines())
        faults = compare_records(self.flights, _read_records(result))
        wrong_carriers = find_wrong_carriers(self.flights, delays)
        self.report.show_comparison(len(self.flights), faults, wrong_carriers)
        return not any(faults.values()) and not wrong_carriers


def _count_rows(query: StreamingQuery, rows: dict[int, int]) -> int:
    """Add what the recent micro-batches have read to ``rows`` by batch; return the sum."""
    for report in query.recentProgress:
        # A report about an idle trigger carries the number of the batch that comes next.
        batch, count = report["batchId"], report["sources"][0]["numInputRows"]
        rows[batch] = max(int(count), rows.get(batch, 0))
    return sum(rows.values())


def _compute_delays(result: DataFrame) -> dict[str, CarrierDelays]:
    """Return what the query's result says about each carrier, computed by Spark."""
    delay = F.col("flight.dep_delay")
    figures = result.groupBy("flight.carrier").agg(
        F.count(F.lit(1)), F.count(delay), F.coalesce(F.sum(delay), F.lit(0))
    )
    return {str(carrier): CarrierDelays(*each) for carrier, *each in figures.collect()}


def _read_records(result: DataFrame) -> Iterator[FlightRecord]:
    """Yield every record in the query's result, byte for byte; not through Spark's own reader."""
    for url in result.inputFiles():
        with pq.ParquetFile(unquote(urlsplit(url).path)) as file:
            for batch in file.iter_batches(columns=["data", "partitionKey"]):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
