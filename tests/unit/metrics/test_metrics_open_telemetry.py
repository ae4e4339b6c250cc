"""Events as OpenTelemetry metrics, read back with the SDK."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kinesis_publishers import Properties, SystemClock
from kinesis_publishers.events import ShardStopped, Throttled
from kinesis_publishers.metrics.open_telemetry import OpenTelemetryMetrics
from kinesis_publishers.metrics.table import METRICS
from kinesis_publishers.model import StartingPosition
from tests.unit.metrics.metric_support import (
    FETCHED,
    ONE,
    POOL,
    PROCESSED,
    ZERO,
    ended,
    fetched,
    resubscribed,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.metrics import Meter

OF_ZERO = {"stream": "orders", "shard": ZERO.shard_id}
LAG = "millis_behind_latest"


class Exported:
    """A meter, and what has been exported of it."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    @property
    def meter(self) -> Meter:
        return self.provider.get_meter("test")

    def instruments(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        return {one.name.removeprefix("kinesis_publishers."): one for one in scope.metrics}

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return attributes and value (the sum of a histogram) of each series."""
        instrument = self.instruments().get(name)
        points = [] if instrument is None else instrument.data.data_points
        return [
            (dict(one.attributes), one.sum if hasattr(one, "sum") else one.value) for one in points
        ]


@pytest.fixture
def exported() -> Iterator[Exported]:
    exported = Exported()
    yield exported
    exported.provider.shutdown()


def test_by_stream_there_is_one_series_with_the_largest_lag_of_its_shards(
    exported: Exported,
) -> None:
    metrics = OpenTelemetryMetrics(exported.meter, is_per_shard=False)
    metrics(fetched(shard=ZERO, millis_behind_latest=9_000))
    metrics(fetched(shard=ONE, millis_behind_latest=10))
    assert exported.points(LAG) == [({"stream": "orders"}, 9_000)]
    assert exported.points("fetches") == [({"stream": "orders"}, 2)]


def test_a_shard_that_is_not_read_any_more_has_no_lag(exported: Exported) -> None:
    metrics = OpenTelemetryMetrics(exported.meter)
    stopped = ShardStopped(shard=ONE, position=StartingPosition.trim_horizon(), error=None)
    for shard, end in ((ZERO, ended(ZERO)), (ONE, stopped)):
        metrics(fetched(shard=shard))
        assert len(exported.points(LAG)) == 1
        metrics(end)
        assert exported.points(LAG) == []


def test_a_throttle_is_recorded_with_its_operation(exported: Exported) -> None:
    metrics = OpenTelemetryMetrics(exported.meter)
    metrics(Throttled(shard=ZERO, operation="GetRecords"))
    metrics(resubscribed())
    assert exported.points("throttles") == [({**OF_ZERO, "operation": "GetRecords"}, 1)]
    assert exported.points("resubscribes") == [(OF_ZERO, 1)]


def test_two_fetchers_of_a_process_share_the_instruments_and_add_up_their_pools(
    exported: Exported, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = OpenTelemetryMetrics(exported.meter), OpenTelemetryMetrics(exported.meter)
    first(POOL)
    second(POOL)
    assert exported.points("pool_bytes") == [({}, 140)]
    # The SDK warns of an instrument that is created twice.
    assert caplog.records == []


def test_the_counters_of_a_closed_fetcher_go_on_with_the_next_one(exported: Exported) -> None:
    for _ in range(2):
        OpenTelemetryMetrics(exported.meter)(FETCHED)
        gc.collect()
    assert exported.points("fetches") == [(OF_ZERO, 2)]


def test_what_a_closed_fetcher_said_last_is_not_exported_for_ever(exported: Exported) -> None:
    metrics = OpenTelemetryMetrics(exported.meter)
    metrics(POOL)
    del metrics
    gc.collect()
    assert exported.points("pool_bytes") == []


def test_every_metric_has_its_unit_kind_and_description(exported: Exported) -> None:
    metrics = OpenTelemetryMetrics(exported.meter)
    for event in (FETCHED, PROCESSED, POOL, started(), resubscribed()):
        metrics(event)
    found = exported.instruments()
    known = {metric.name: metric for metric in METRICS.metrics}
    assert len(found) > 20
    for name, instrument in found.items():
        assert instrument.unit == known[name].unit
        assert instrument.description == known[name].description


def test_a_histogram_has_the_buckets_of_its_unit(exported: Exported) -> None:
    metrics = OpenTelemetryMetrics(exported.meter)
    metrics(PROCESSED)
    (point,) = exported.instruments()["processing_duration"].data.data_points
    (metric,) = [one for one in METRICS.metrics if one.name == "processing_duration"]
    assert point.explicit_bounds == metric.buckets


def test_without_a_provider_nothing_happens() -> None:
    properties = Properties.parse({"kinesis.metrics.level": "stream"}, complete=False)
    metrics = OpenTelemetryMetrics.from_properties(properties, SystemClock())
    for event in (FETCHED, POOL, ended()):
        metrics(event)
