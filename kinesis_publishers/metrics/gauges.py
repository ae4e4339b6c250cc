"""The last values of gauges, by shard, until the shard is not read any more."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from kinesis_publishers.events import RangeRead, ShardEnded, ShardStopped

if TYPE_CHECKING:
    from kinesis_publishers.events import Event
    from kinesis_publishers.metrics.metric import Metric
    from kinesis_publishers.model import ShardKey

__all__ = ["LabelSet", "LastValues", "is_end_of_reading"]

LabelSet: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of attributes."""


def is_end_of_reading(event: Event) -> TypeGuard[ShardEnded | ShardStopped | RangeRead]:
    """Say whether the shard that ``event`` is about is not being read any more."""
    return isinstance(event, ShardEnded | ShardStopped | RangeRead)


class LastValues:
    """What each shard said last.

    A shard that is not read any more has no lag: its last value would stay for ever, and keep an
    alarm ringing. Written on the event loop and read by the thread of an exporter.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[str, dict[ShardKey | None, tuple[LabelSet, float]]] = {}

    def set(self, metric: Metric, shard: ShardKey | None, labels: LabelSet, value: float) -> None:
        """Keep ``value`` as the last one of a shard."""
        with self._lock:
            self._values.setdefault(metric.name, {})[shard] = (labels, value)

    def forget_ended(self, event: Event) -> bool:
        """Drop what a shard said if ``event`` says that it is not read any more; return that."""
        if not is_end_of_reading(event):
            return False
        with self._lock:
            for of_metric in self._values.values():
                of_metric.pop(event.shard, None)
        return True

    def values_of(self, metric: Metric) -> list[tuple[LabelSet, float]]:
        """Return the last value of each shard that is being read."""
        with self._lock:
            return list(self._values.get(metric.name, {}).values())
