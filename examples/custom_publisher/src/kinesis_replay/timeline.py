"""When a recorded record is due in the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers import Clock

__all__ = ["Timeline"]


class Timeline:
    """One for all shards: records that arrived at the same time are due at the same time.

    It begins with the first record that any shard asks for.

    Args:
        clock: the source of time.
        speed: how many times as fast as the recording; with 0 everything is due at once.
    """

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._began: tuple[float, float] | None = None

    def seconds_until(self, arrival_epoch_seconds: float) -> float:
        """Return the seconds until a record of this arrival time is due; negative if overdue."""
        if not self._speed:
            return 0.0
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now, arrival_epoch_seconds
        began, first_arrival = self._began
        return began + (arrival_epoch_seconds - first_arrival) / self._speed - now
