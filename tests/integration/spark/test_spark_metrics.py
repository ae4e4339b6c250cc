"""The sinks of the properties, in the Python processes that Spark starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.spark.spark_harness import FROM_THE_START, numbered, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.spark.spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def test_what_was_read_is_counted_in_cloudwatch(
    runner: QueryRunner,
    flights: str,
    planner: str,
    moto_url: str,
    cloudwatch_sums: Callable[[str], dict[str, float]],
) -> None:
    namespace = f"spark-{planner}"

    def processed() -> float:
        return cloudwatch_sums(namespace).get("RecordsProcessed", 0)

    options = FROM_THE_START | {
        "kinesis.spark.planner": planner,
        "kinesis.metrics.sinks": "log,cloudwatch",
        "kinesis.metrics.level": "stream",
        "kinesis.metrics.cloudwatch.namespace": namespace,
        "kinesis.metrics.cloudwatch.endpoint": moto_url,
        "kinesis.metrics.cloudwatch.intervalmillis": "1000",
    }
    runner.server.put_many(flights, numbered(0, 300))
    with runner.run(**options) as running:
        running.wait_for_rows(300)
        running.wait_until(lambda: processed() >= 300)
    assert processed() == 300
    assert sorted(numbers(running.rows)) == list(range(300))
