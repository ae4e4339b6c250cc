"""The lag of a query: what waits for Spark counts, and what Spark works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.planner.planner_harness import StartQuery, eventually, put

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis


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
