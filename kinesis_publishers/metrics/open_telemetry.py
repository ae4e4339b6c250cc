"""Diagnostic events as OpenTelemetry metrics: needs the extra ``opentelemetry``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from threading import Lock
from typing import ClassVar, Final, Self, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
from opentelemetry.util.types import AttributeValue

from kinesis_publishers.abc import EventReporter
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import MetricsConfig, Properties
from kinesis_publishers.events import Event
from kinesis_publishers.metrics.metric import Metric, MetricKind, is_end_of_reading, stream_of
from kinesis_publishers.metrics.table import METRICS
from kinesis_publishers.model import ShardKey

METER_NAME: Final = "kinesis_publishers"
"""The meter, and the first part of each instrument's name."""

# Names and values of attributes.
_LabelSet: TypeAlias = tuple[tuple[str, str], ...]


class OpenTelemetryMetrics(EventReporter):
    """Records every event on the instruments of a meter.

    Selected by ``metrics.sinks = opentelemetry``, or passed to ``events=``. A ``MeterProvider``
    decides what is exported, how often and where to; without one this does nothing.

    Args:
        meter: makes the instruments; by default ``kinesis_publishers`` of the global provider.
        is_per_shard: whether values have the attribute ``shard`` as well as ``stream``. A stream
            with thousands of shards makes thousands of series of each metric.
    """

    def __init__(self, meter: Meter | None = None, *, is_per_shard: bool = True) -> None:
        # Kept: a meter that is older than the provider learns of it only while it lives.
        self._meter = meter or get_meter(METER_NAME)
        self._instruments = _Instruments.of(self._meter)
        self._is_per_shard = is_per_shard
        self._labels: dict[ShardKey, _LabelSet] = {}
        # By gauge and shard, as long as the shard is read: otherwise its lag would keep an alarm
        # ringing forever.
        self._last_values: dict[str, dict[Hashable, tuple[_LabelSet, float]]] = {}
        self._instruments.reporters.add(self)

    @classmethod
    def from_properties(cls, properties: Properties, clock: Clock) -> Self:
        return cls(is_per_shard=MetricsConfig.from_properties(properties).is_per_shard)

    def __call__(self, event: Event) -> None:
        shard: ShardKey | None = getattr(event, "shard", None)
        query: str | None = getattr(event, "query", None)
        owner: Hashable = shard
        labels = self._labels_of(event, shard)
        if query is not None:
            labels, owner = (*labels, ("query", query)), (shard or stream_of(event), query)
        for metric, value in METRICS.measured_by(event):
            if metric.kind is MetricKind.GAUGE:
                self._last_values.setdefault(metric.name, {})[owner] = (labels, value)
            else:
                self._instruments.record(metric, value, _all_labels(metric, event, labels))
        if shard is not None and is_end_of_reading(event):
            # Readers in other threads may use this, too.
            for of_gauge in tuple(self._last_values.values()):
                of_gauge.pop(owner, None)
            self._labels.pop(shard, None)

    def last_values_of(self, metric: Metric) -> list[tuple[_LabelSet, float]]:
        """Return the values of a gauge; the thread of an exporter may call it."""
        # Not one by one: another thread may change them meanwhile.
        return list(self._last_values.get(metric.name, {}).values())

    def _labels_of(self, event: Event, shard: ShardKey | None) -> _LabelSet:
        if shard is None:
            stream = stream_of(event)
            return () if stream is None else (("stream", stream),)
        labels = self._labels.get(shard)
        if labels is None:
            both = (("stream", shard.stream_name), ("shard", shard.shard_id))
            labels = self._labels[shard] = both if self._is_per_shard else both[:1]
        return labels


def _all_labels(metric: Metric, event: Event, labels: _LabelSet) -> _LabelSet:
    if not metric.is_per_shard:
        labels = tuple(label for label in labels if label[0] != "shard")
    if metric.attributes:
        labels = (*labels, *((name, getattr(event, name)) for name in metric.attributes))
    return labels


class _Instruments:
    """The instruments of one meter, for all reporters that record with it.

    Counters and gauges are asked for their values at each export: recording each value in the SDK
    takes some twenty times as long as adding it up here. They cannot be unregistered: if each
    reporter made its own, those of closed fetchers would be asked forever.
    """

    _by_meter: ClassVar[WeakKeyDictionary[Meter, _Instruments]] = WeakKeyDictionary()

    def __init__(self, meter: Meter) -> None:
        # As long as they are in use.
        self.reporters: WeakSet[OpenTelemetryMetrics] = WeakSet()
        self._lock = Lock()
        # As old as the meter: a counter that starts at zero again would look like a restart.
        self._totals: dict[str, dict[_LabelSet, float]] = {}
        self._histograms: dict[str, Callable[[float, dict[str, AttributeValue]], None]] = {}
        for metric in METRICS.metrics:
            self._create(meter, metric)

    @classmethod
    def of(cls, meter: Meter) -> _Instruments:
        if meter not in cls._by_meter:
            cls._by_meter[meter] = cls(meter)
        return cls._by_meter[meter]

    def record(self, metric: Metric, value: float, labels: _LabelSet) -> None:
        if metric.kind is MetricKind.HISTOGRAM:
            self._histograms[metric.name](value, dict(labels))
            return
        totals = self._totals[metric.name]
        with self._lock:
            totals[labels] = totals.get(labels, 0) + value

    def _create(self, meter: Meter, metric: Metric) -> None:
        name, unit, text = f"{METER_NAME}.{metric.name}", metric.unit, metric.description
        if metric.kind is MetricKind.HISTOGRAM:
            self._histograms[metric.name] = meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=metric.buckets
            ).record
            return
        if metric.kind is MetricKind.GAUGE:
            meter.create_observable_gauge(name, [partial(self._observe_gauge, metric)], unit, text)
            return
        self._totals[metric.name] = {}
        create = (
            meter.create_observable_counter
            if metric.kind is MetricKind.COUNTER
            else meter.create_observable_up_down_counter
        )
        create(name, [partial(self._observe_counter, metric)], unit, text)

    def _observe_counter(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            totals = list(self._totals[metric.name].items())
        return [Observation(total, dict(labels)) for labels, total in totals]

    def _observe_gauge(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        values: dict[_LabelSet, list[float]] = {}
        for reporter in tuple(self.reporters):
            for labels, value in reporter.last_values_of(metric):
                values.setdefault(labels, []).append(value)
        return [
            Observation(metric.combined(of_labels), dict(labels))
            for labels, of_labels in values.items()
        ]
