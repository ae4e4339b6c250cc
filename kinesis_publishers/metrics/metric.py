"""Defines a metric and the events that feed it. Pure; every exporter uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeGuard

from attrs import evolve, field, frozen

from kinesis_publishers import events as ev
from kinesis_publishers.model.sources import stream_arn_of, stream_name_of

ValueOf: TypeAlias = Callable[[Any], float | None]
"""Returns what an event measures; ``None`` for nothing."""

Source: TypeAlias = ValueOf | str | int
"""What an event measures: a function, the name of a field, or a constant."""


class MetricKind(Enum):
    COUNTER = "counter"
    UP_DOWN_COUNTER = "up-down counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


def _value_of(source: Source) -> ValueOf:
    if isinstance(source, str):
        return attrgetter(source)
    return source if callable(source) else lambda _: source


def _values_of(sources: Mapping[Any, Source]) -> dict[type, ValueOf]:
    """Return what is measured by the type of event, of which ``sources`` may have the name."""
    types = {one: getattr(ev, one) if isinstance(one, str) else one for one in sources}
    return {types[one]: _value_of(source) for one, source in sources.items()}


@frozen
class Metric:
    """One metric, and the events that feed it.

    Attributes:
        name: its name, without a prefix.
        unit: its unit, in the exporter's notation (UCUM for OpenTelemetry).
        attributes: fields of the events that keep values apart, in addition to stream and shard.
        is_per_shard: whether values are kept apart by shard where that is wanted.
        combined: makes one value of a gauge of those of several shards.
        buckets: upper bounds of a histogram's buckets.
        kcl_task: the task of the KCL that it belongs to, in CloudWatch.
    """

    name: str
    kind: MetricKind
    unit: str
    description: str
    sources: Mapping[type, ValueOf] = field(converter=_values_of)
    attributes: tuple[str, ...] = ()
    is_per_shard: bool = True
    combined: Callable[[Iterable[float]], float] = max
    buckets: tuple[float, ...] | None = None
    kcl_task: str | None = None


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


def counter(name: str, unit: str, text: str, *attributes: str, **sources: Source) -> Metric:
    """Return a counter; ``sources`` have the names of events."""
    return Metric(name, MetricKind.COUNTER, unit, text, sources, attributes)


def counted_records(name: str, text: str, *attributes: str, **sources: Source) -> Metric:
    return counter(name, "{record}", text, *attributes, **sources)


def duration(name: str, text: str, **sources: Source) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, "s", text, sources, buckets=_SECONDS)


def gauge(
    name: str,
    unit: str,
    text: str,
    *,
    combined: Callable[[Iterable[float]], float] = max,
    **sources: Source,
) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, text, sources, combined=combined)


_UNITS_OF_CLOUDWATCH: Final = {"s": "Milliseconds", "ms": "Milliseconds", "By": "Bytes"}
_MILLIS: Final = 1e3


def for_cloudwatch(name: str, metric: Metric, *, kcl_task: str | None = None) -> Metric:
    sources = metric.sources
    if metric.unit == "s":
        sources = {event_type: _in_millis(value_of) for event_type, value_of in sources.items()}
    return evolve(
        metric,
        name=name,
        # It keeps the number, sum, minimum and maximum of everything.
        kind=MetricKind.HISTOGRAM,
        unit=_UNITS_OF_CLOUDWATCH.get(metric.unit, "Count"),
        sources=sources,
        kcl_task=kcl_task,
    )


def _in_millis(seconds_of: ValueOf) -> ValueOf:
    return lambda event: None if (seconds := seconds_of(event)) is None else seconds * _MILLIS


@frozen
class MetricTable:
    metrics: tuple[Metric, ...]
    _by_event: dict[type, tuple[tuple[Metric, ValueOf], ...]] = field(init=False)

    @_by_event.default
    def _index(self) -> dict[type, tuple[tuple[Metric, ValueOf], ...]]:
        found: dict[type, list[tuple[Metric, ValueOf]]] = {}
        for metric in self.metrics:
            for event_type, value_of in metric.sources.items():
                found.setdefault(event_type, []).append((metric, value_of))
        return {event_type: tuple(one) for event_type, one in found.items()}

    def measured_by(self, event: ev.Event) -> list[tuple[Metric, float]]:
        """Return the metrics that an event changes, and its values for them."""
        sources = self._by_event.get(type(event), ())
        return [(metric, value) for metric, of in sources if (value := of(event)) is not None]


def stream_of(event: ev.Event) -> str | None:
    """Return the name of the stream that ``event`` is about, if it is about one."""
    shard = getattr(event, "shard", None)
    if shard is not None:
        return str(shard.stream_name)
    arn = getattr(event, "stream_arn", None) or getattr(event, "consumer_arn", None)
    return None if arn is None else stream_name_of(stream_arn_of(str(arn)))


def is_end_of_reading(
    event: ev.Event,
) -> TypeGuard[ev.ShardEnded | ev.ShardStopped | ev.RangeRead | ev.QueryLagMeasured]:
    """Return whether the shard of ``event`` is no longer being read, or reported."""
    if isinstance(event, ev.QueryLagMeasured):
        return event.seconds is None
    return isinstance(event, ev.ShardEnded | ev.ShardStopped | ev.RangeRead)
