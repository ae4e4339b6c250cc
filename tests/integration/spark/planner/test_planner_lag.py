"""The lag of a query: what waits for Spark counts, and what Spark works on."""

from __future__ import annotations

from kinesis_publishers.testing.local_kinesis import Fault, Limits, LocalKinesis
from tests.integration.spark.planner.planner_harness import (
    FIRST_SHARD,
    STREAM,
    QueryOf,
    ShiftedClock,
    StartQuery,
    eventually,
    options,
    planner_of,
    put,
)


def test_a_record_counts_until_spark_is_done_with_its_micro_batch(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    put(server, ["a"])
    query = start_query()
    query.run_until(1)

    def is_worked_on() -> bool:
        lag = query.planner.lag()
        return lag is not None and lag.max_lag_millis >= 100 and lag.max_millis_behind_latest == 0

    eventually(is_worked_on, "a lag that grows, although the service has nothing more")

    def is_done() -> bool:
        # There may be one without records: it names the shard that had none when the first ended.
        query.run_batch()
        return (lag := query.planner.lag()) is not None and lag.max_lag_millis == 0

    eventually(is_done, "no lag")


def test_records_of_a_shard_that_was_left_behind_are_late(query_of: QueryOf, kind: str) -> None:
    clock = ShiftedClock(-60.0)
    with LocalKinesis.in_thread(Limits.off(), clock=clock) as server:
        server.create_stream(STREAM, 2)
        old = put(server, ["old"] * 12)
        clock.seconds = 0.0
        young = put(server, ["young"] * 12)
        server.add_fault(Fault("GetRecords", "throttle", shard_id=FIRST_SHARD, times=None))
        settings = options(server, spark_alignment_patience="1s")
        query = query_of(lambda: planner_of(kind, settings, clock=clock))
        query.run_until(sum(row[0] != FIRST_SHARD for row in old + young))
        assert all(row[0] != FIRST_SHARD for row in query.rows), "the others did not wait for ever"
        server.clear_faults()
        query.run_until(len(old + young))
        lag = query.planner.lag()
        assert lag is not None
        expected = sum(row[0] == FIRST_SHARD for row in old)
        assert lag.late_records_by_shard == {f"{STREAM}/{FIRST_SHARD}": expected}
        query.stop()
