"""The course of the demo: server, Spark, loader and query, then the comparison."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kinesis_publishers_spark.demo import DemoError
from kinesis_publishers_spark.demo.flights import (
    FlightRecord,
    compare_delays,
    compare_records,
    load_airlines,
    load_flights,
    summarize_flights,
)
from kinesis_publishers_spark.demo.loader import Loader, start_loader
from kinesis_publishers_spark.demo.query import (
    ReadProgress,
    compute_delays,
    read_records,
    read_result,
    start_query,
)
from kinesis_publishers_spark.demo.report import ReadFigures, Report
from kinesis_publishers_spark.demo.server import serve_stream
from kinesis_publishers_spark.demo.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kinesis_publishers import Clock

_STREAM: Final = "flights"
_POLL_SECONDS: Final = 0.5
# Starting Python workers takes seconds, tens of them on a busy machine.
_START_SECONDS: Final = 150.0
# Longer than anything waits in the query: a stream that is quiet for so long has no more records.
_STALL_SECONDS: Final = 30.0
_PREFIX: Final = "kinesis-publishers-demo-"


def run_demo(
    report: Report,
    clock: Clock,
    check_signals: Callable[[], None],
    *,
    shards: int,
    limit: int | None,
) -> bool:
    """Run the demo and say whether what Spark read is exactly what was put.

    It leaves no process and no file behind, however it ends.

    Args:
        report: where it says what it does.
        clock: the time.
        check_signals: called time and again; it raises to end the demo.
        shards: how many shards the stream has.
        limit: how many flights to put; ``None`` for all.

    Raises:
        DemoError: the query failed, or ended before it was stopped.
    """
    with ExitStack() as stack:
        stack.enter_context(report)
        # A worker that is being killed may still be writing.
        temporary = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
        directory = Path(stack.enter_context(temporary))
        report.say("Reading the flights, starting a local Kinesis and Spark ...")
        flights = load_flights(limit)
        properties = stack.enter_context(serve_stream(_STREAM, shards))
        report.begin("starting Spark")
        spark = stack.enter_context(open_session(directory))
        report.say(
            f"Spark {spark.version} reads the stream {_STREAM!r} with {shards} shards at "
            f"{properties['aws.endpoint']} while {len(flights):,} flights are put into it ..."
        )
        job = _Job(
            spark=spark,
            directory=directory,
            flights=flights,
            report=report,
            clock=clock,
            check_signals=check_signals,
        )
        try:
            job.read(properties)
            return job.verify()
        except (PySparkException, Py4JError) as error:
            # Spark's errors get their text from the JVM, which ends with this context. The plan
            # and the offsets, which follow, are long and tell a user nothing.
            text = str(error).partition("\n=== Streaming Query ===")[0]
            raise DemoError(text) from None


@frozen(kw_only=True, eq=False)
class _Job:
    """Reads the stream while it is filled, then compares."""

    spark: SparkSession
    directory: Path
    flights: Sequence[FlightRecord]
    report: Report
    clock: Clock
    check_signals: Callable[[], None]

    def read(self, properties: Mapping[str, str]) -> None:
        """Put all records and wait until the query has read them, or nothing more comes."""
        query = start_query(self.spark, properties, self.directory)
        try:
            # Not before the query reads: otherwise everything would be there when it begins.
            self._wait_for_first_trigger(query)
            with start_loader(properties, self.flights) as (loader, loading):
                self._say_rate(self._follow(query, loader, loading))
            # Records after the last expected one must be found as well.
            query.processAllAvailable()
        finally:
            query.stop()

    def _wait_for_first_trigger(self, query: StreamingQuery) -> None:
        deadline = self.clock.monotonic() + _START_SECONDS
        while query.lastProgress is None:
            if self._has_ended(query) or self.clock.monotonic() > deadline:
                raise DemoError("The query did not begin to read.")

    def _follow(self, query: StreamingQuery, loader: Loader, loading: Future[None]) -> ReadFigures:
        progress = ReadProgress()
        started = last_change = self.clock.monotonic()
        figures = ReadFigures(total=len(self.flights))
        while not (loading.done() and figures.is_complete):
            if self._has_ended(query):
                raise DemoError("The query ended before it had read everything.")
            if loading.done():
                loading.result()
            progress.observe(query.recentProgress)
            now = self.clock.monotonic()
            if progress.rows != figures.read or not loading.done():
                last_change = now
            elif now - last_change > _STALL_SECONDS:
                self.report.say(f"Nothing more came for {_STALL_SECONDS:.0f} s.")
                break
            figures = evolve(
                figures,
                put=loader.put,
                read=progress.rows,
                elapsed_seconds=now - started,
                lag_seconds=self._lag_seconds(progress, loader.put, now - started),
            )
            self.report.show_progress(figures)
        return figures

    def _has_ended(self, query: StreamingQuery) -> bool:
        """Wait a moment; raise the error with which the query failed, if it did."""
        self.check_signals()
        # Fractions of a second work, the annotation does not say so.
        return bool(query.awaitTermination(_POLL_SECONDS))  # type: ignore[arg-type]

    def _lag_seconds(self, progress: ReadProgress, put: int, elapsed: float) -> float | None:
        """Return the lag now: a report is as old as the micro-batch that Spark works on."""
        if progress.read_until is None:
            return None
        age = (self.clock.now() - progress.read_until).total_seconds()
        # No record is older than the loader.
        return min(age, elapsed) if progress.rows < put else 0.0

    def _say_rate(self, figures: ReadFigures) -> None:
        put = sum(len(flight.data) for flight in self.flights)
        megabytes = put * figures.read / figures.total / 1e6
        self.report.say(
            f"Read {figures.read:,} records in {figures.elapsed_seconds:.1f} s, counted from the "
            f"first one put: {figures.records_per_second:,.0f} records/s, "
            f"{megabytes / figures.elapsed_seconds:.1f} MB/s. "
            "(AWS's limit on reading, 2 MiB/s for each shard, is kept.)"
        )

    def verify(self) -> bool:
        """Compare every record, and the figures that Spark computes, with the CSV."""
        self.check_signals()
        self.report.begin("comparing")
        result = read_result(self.spark, self.directory)
        delays = compute_delays(result)
        self.report.show_delays(delays, load_airlines())
        comparison = compare_records(self.flights, read_records(result))
        wrong_carriers = compare_delays(summarize_flights(self.flights), delays)
        self.report.show_comparison(comparison, wrong_carriers)
        return comparison.is_exact and not wrong_carriers
