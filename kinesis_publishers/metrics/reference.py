"""Renders events and metrics as tables of the documentation."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from attrs import fields

from kinesis_publishers.events import EVENT_TYPES
from kinesis_publishers.metrics.kcl_table import KCL_METRICS
from kinesis_publishers.metrics.metric import Metric, MetricKind
from kinesis_publishers.metrics.table import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["render_events", "render_kcl_metrics", "render_metrics"]

_COMBINED: Final[dict[Any, str]] = {
    max: "the largest",
    min: "the smallest",
    fmean: "the mean",
    sum: "the sum",
}


def render_events() -> str:
    """Return a table of all events."""
    return _table(
        ("Event", "Fields", "Says"),
        (
            (
                f"`{one.__name__}`",
                ", ".join(f"`{field.name}`" for field in fields(one)),
                _first_paragraph(one),
            )
            for one in EVENT_TYPES
        ),
    )


def render_metrics() -> str:
    """Return a table of all metrics under our own names, which lack their prefix."""
    return _table(
        ("Metric", "Kind", "Unit", "Attributes", "Made of", "Says"),
        (
            (
                f"`{one.name}`" + (f" (Flink: `{one.flink_name}`)" if one.flink_name else ""),
                _kind(one),
                one.unit,
                ", ".join(f"`{name}`" for name in _attributes(one)) or "none",
                _sources(one),
                one.description,
            )
            for one in METRICS.metrics
        ),
    )


def render_kcl_metrics() -> str:
    """Return a table of all metrics under the names of the KCL."""
    return _table(
        ("Metric", "Unit", "Made of", "Says"),
        (
            (f"`{one.name}`", one.unit, _sources(one), one.description)
            for one in KCL_METRICS.metrics
        ),
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _first_paragraph(event_type: type) -> str:
    text = (event_type.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split())


def _kind(metric: Metric) -> str:
    if metric.kind is not MetricKind.GAUGE:
        return str(metric.kind.value)
    combined: Callable[[Iterable[float]], float] = metric.combined
    return f"gauge; together {_COMBINED[combined]}"


def _attributes(metric: Metric) -> list[str]:
    found = {field.name for one in metric.sources for field in fields(one)}
    has_shard = "shard" in found
    has_stream = has_shard or bool(found & {"stream_arn", "consumer_arn"})
    return [
        *(["stream"] if has_stream else []),
        *(["shard"] if has_shard and metric.is_per_shard else []),
        *metric.attributes,
    ]


def _sources(metric: Metric) -> str:
    return ", ".join(f"`{one.__name__}`" for one in metric.sources)
