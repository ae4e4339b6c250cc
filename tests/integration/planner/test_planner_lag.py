"""The lag of a query: what waits for Spark counts, and what Spark works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.integration.planner.planner_harness import NO_LIMIT, Query, eventually, put

if TYPE_CHECKING:
    from kinesis_publishers.testing.local_kinesis import LocalKinesis

StartQuery = Callable[..., Query]


def lag_millis(query: Query) -> int | None:
    lag = query.planner.lag()
    return None if lag is None else lag.max_lag_millis


def test_a_record_counts_until_spark_is_done_with_its_micro_batch(
    server: LocalKinesis, start_query: StartQuery
) -> None:
    query = start_query()
    start = query.planner.initial_offset()
    put(server, ["a"])
    end = start

    def has_planned() -> bool:
        nonlocal end
        end = query.planner.latest_offset(start, NO_LIMIT)
        return end != start

    eventually(has_planned, "a micro-batch")
    # The service has nothing more, and still the lag grows.
    eventually(lambda: (lag_millis(query) or 0) >= 100, "the age of what Spark works on")
    lag = query.planner.lag()
    assert lag is not None
    assert lag.max_millis_behind_latest == 0

    def is_done() -> bool:
        assert query.planner.latest_offset(end, NO_LIMIT) is end
        return lag_millis(query) == 0

    eventually(is_done, "no lag")
