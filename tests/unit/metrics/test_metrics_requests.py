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
)
from kinesis_publishers.metrics.cloudwatch_table import KCL_METRICS
from tests.examples import examples
from tests.unit.metrics.metric_support import ONE, POOL, PROCESSED, ZERO, fetched

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=128)


def data_of(*events: object, is_per_shard: bool = True) -> list[dict]:
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=is_per_shard)
    for event in events:
        statistics.add(event)
    return statistics.take(NOW)


def statistics_of(*events: object, is_per_shard: bool = True) -> dict[tuple, dict[str, float]]:
    """Return the sums by metric, stream and shard."""
    found = {}
    for datum in data_of(*events, is_per_shard=is_per_shard):
        place = {one["Name"]: one["Value"] for one in datum["Dimensions"]}
        key = datum["MetricName"], place.get("StreamId"), place.get("ShardId")
        found[key] = datum["StatisticValues"]
    return found


def test_values_of_an_interval_become_number_sum_minimum_and_maximum() -> None:
    lags = [fetched(millis_behind_latest=lag) for lag in (30, 10, 20)]
    found = statistics_of(*lags)
    sums = {"SampleCount": 3.0, "Sum": 60.0, "Minimum": 10.0, "Maximum": 30.0}
    assert found["MillisBehindLatest", "orders", ZERO.shard_id] == sums


def test_shards_are_kept_apart_or_not() -> None:
    events = [fetched(shard=ZERO), fetched(shard=ONE)]
    lag = "MillisBehindLatest"
    apart = statistics_of(*events)
    assert apart[lag, "orders", ZERO.shard_id]["SampleCount"] == 1
    assert apart[lag, "orders", ONE.shard_id]["SampleCount"] == 1
    together = statistics_of(*events, is_per_shard=False)
    assert together[lag, "orders", None]["SampleCount"] == 2


def test_an_interval_begins_with_nothing() -> None:
    statistics = IntervalStatistics(KCL_METRICS, is_per_shard=True)
    statistics.add(PROCESSED)
    assert statistics.take(NOW) != []
    assert statistics.take(NOW) == []


def test_a_datum_has_the_dimensions_of_the_kcl() -> None:
    datum = data_of(fetched())[0]
    assert datum["MetricName"] == "KinesisDataFetcher.getRecords.Success"
    assert datum["Dimensions"] == [
        {"Name": "Operation", "Value": "ProcessTask"},
        {"Name": "StreamId", "Value": "orders"},
        {"Name": "ShardId", "Value": ZERO.shard_id},
    ]
    assert datum["StatisticValues"]["SampleCount"] == 1.0
    assert (datum["Unit"], datum["Timestamp"]) == ("Count", NOW)


def test_what_is_about_no_shard_has_no_dimension_for_it() -> None:
    names = [one["Name"] for one in data_of(POOL)[0]["Dimensions"]]
    assert names == ["Operation"]


@given(name=NAMES)
@settings(max_examples=examples(10))
def test_a_full_request_is_no_larger_than_cloudwatch_takes(name: str) -> None:
    """In the query protocol of older SDKs, which is the longest one, and before compression."""
    model = Session().get_service_model("cloudwatch").operation_model("PutMetricData")
    sums = dict.fromkeys(("SampleCount", "Sum", "Minimum", "Maximum"), 0.123456789e18)
    dimensions = ["Operation", "StreamId", "ShardId", "Query", "ErrorCode"]
    datum = {
        "MetricName": max((one.name for one in KCL_METRICS.metrics), key=len),
        "Dimensions": [{"Name": one, "Value": name} for one in dimensions],
        "Timestamp": NOW,
        "Unit": "Milliseconds",
        "StatisticValues": sums,
    }
    parameters = {"Namespace": "x" * 255, "MetricData": [datum] * MAX_DATA}
    body = QuerySerializer().serialize_to_request(parameters, model)["body"]
    assert len(urlencode(body)) <= 1_000_000
