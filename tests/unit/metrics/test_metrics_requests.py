"""What is added up in an interval, and the size of the requests of PutMetricData."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from urllib.parse import urlencode

from botocore.serialize import QuerySerializer
from botocore.session import Session
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesis_publishers.metrics.cloudwatch import (
    MAX_DATA,
    IntervalStatistics,
    Series,
    Statistics,
    datum_of,
)
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS
from tests.examples import examples
from tests.unit.metrics.metric_support import ONE, POOL, PROCESSED, ZERO, fetched

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=128)


def statistics_of(*events: object, is_per_shard: bool = True) -> dict[tuple, Statistics]:
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=is_per_shard)
    for event in events:
        statistics.add(event)
    return {(one.metric.name, one.stream, one.shard_id): sums for one, sums in statistics.take()}


def data_of(count: int, name: str = "orders") -> list[dict]:
    series = Series(KCL_METRICS.metrics[0], name, ZERO.shard_id)
    return [datum_of(series, Statistics(3, 1e9, 0.123456789, 1e18), NOW)] * count


def test_values_of_an_interval_become_number_sum_minimum_and_maximum() -> None:
    lags = [fetched(millis_behind_latest=lag) for lag in (30, 10, 20)]
    found = statistics_of(*lags)
    assert found["MillisBehindLatest", "orders", ZERO.shard_id] == Statistics(3, 60, 10, 30)


def test_shards_are_kept_apart_or_not() -> None:
    events = [fetched(shard=ZERO), fetched(shard=ONE)]
    lag = "MillisBehindLatest"
    apart = statistics_of(*events)
    assert apart[lag, "orders", ZERO.shard_id].count == 1
    assert apart[lag, "orders", ONE.shard_id].count == 1
    together = statistics_of(*events, is_per_shard=False)
    assert together[lag, "orders", None].count == 2


def test_an_interval_begins_with_nothing() -> None:
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=True)
    statistics.add(PROCESSED)
    assert statistics.take() != []
    assert statistics.take() == []


def test_a_datum_has_the_dimensions_of_the_kcl() -> None:
    (datum,) = data_of(1)
    assert datum["MetricName"] == "KinesisDataFetcher.getRecords.Success"
    assert datum["Dimensions"] == [
        {"Name": "Operation", "Value": "ProcessTask"},
        {"Name": "StreamId", "Value": "orders"},
        {"Name": "ShardId", "Value": ZERO.shard_id},
    ]
    assert datum["StatisticValues"]["SampleCount"] == 3.0
    assert (datum["Unit"], datum["Timestamp"]) == ("Count", NOW)


def test_what_is_about_no_shard_has_no_dimension_for_it() -> None:
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=True)
    statistics.add(POOL)
    series, sums = statistics.take()[0]
    names = [one["Name"] for one in datum_of(series, sums, NOW)["Dimensions"]]
    assert names == ["Operation"]


@given(name=NAMES)
@settings(max_examples=examples(10))
def test_a_full_request_is_no_larger_than_cloudwatch_takes(name: str) -> None:
    """In the query protocol of older SDKs, which is the longest one, and before compression."""
    model = Session().get_service_model("cloudwatch").operation_model("PutMetricData")
    series = Series(KCL_METRICS.metrics[0], name, ZERO.shard_id, "x" * 255, "x" * 255)
    datum = datum_of(series, Statistics(3, 1e9, 0.123456789, 1e18), NOW)
    parameters = {"Namespace": "x" * 255, "MetricData": [datum] * MAX_DATA}
    body = QuerySerializer().serialize_to_request(parameters, model)["body"]
    assert len(urlencode(body)) <= 1_000_000
