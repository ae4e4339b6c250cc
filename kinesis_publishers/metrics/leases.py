"""The metrics of leases: which shards the workers of an application read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kinesis_publishers.events import LeaseLost, LeaseReleased, LeasesCounted, LeaseTaken
from kinesis_publishers.metrics.metric import Metric, MetricKind, counter, one


def _gauge(name: str, text: str, value: Callable[[LeasesCounted], float]) -> Metric:
    unit = "{worker}" if name == "workers" else "{lease}"
    return Metric(f"lease_{name}", MetricKind.GAUGE, unit, text, {LeasesCounted: value})


LEASES: Final = (
    _gauge("current", "Shards that this worker has the lease on.", lambda e: e.current),
    _gauge("total", "Shards of the application that have not ended.", lambda e: e.total),
    _gauge("free", "Shards that no live worker has the lease on.", lambda e: e.free),
    _gauge(
        "spilled",
        "Free shards that are too many for this worker (kinesis.lease.maxleasesforworker).",
        lambda e: e.spilled,
    ),
    _gauge(
        "workers", "Live workers, as far as they have leases, and this one.", lambda e: e.workers
    ),
    counter("leases_taken", "{lease}", "Leases that this worker has got.", {LeaseTaken: one}),
    counter(
        "leases_released",
        "{lease}",
        "Leases that this worker has given back or handed over.",
        {LeaseReleased: one},
    ),
    counter(
        "leases_lost",
        "{lease}",
        "Leases that another worker has taken from this one.",
        {LeaseLost: one},
    ),
)
"""Part of :data:`~kinesis_publishers.metrics.table.METRICS`."""
