"""The sinks of the properties, in the Python processes that Spark starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import boto3
import pytest
from spark_harness import FROM_THE_START, numbered, numbers

if TYPE_CHECKING:
    from spark_harness import QueryRunner

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def processed(url: str, namespace: str) -> float:
    """Return how many records CloudWatch was told of."""
    client = boto3.client(
        "cloudwatch",
        "us-east-1",
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    now = datetime.now(UTC)
    points = client.get_metric_statistics(
        Namespace=namespace,
        MetricName="RecordsProcessed",
        Dimensions=[
            {"Name": "Operation", "Value": "ProcessTask"},
            {"Name": "StreamId", "Value": "flights"},
        ],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(hours=1),
        Period=7200,
        Statistics=["Sum"],
    )["Datapoints"]
    return sum(float(point["Sum"]) for point in points)


def test_what_was_read_is_counted_in_cloudwatch(
    runner: QueryRunner, flights: str, planner: str, moto_url: str
) -> None:
    namespace = f"spark-{planner}"
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
        running.wait_until(lambda: processed(moto_url, namespace) >= 300)
    assert processed(moto_url, namespace) == 300
    assert sorted(numbers(running.rows)) == list(range(300))
