"""When a recorded record is due again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_publishers import Clock

__all__ = ["Timeline"]


class Timeline:
    """One for all shards: what arrived at the same time is due at the same time.

    It begins when somebody first asks, with the record that is asked for.

    Args:
        clock: the time that passes.
        speed: how many times as fast as the recording; 0 lets everything be due at once.
    """

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._began: tuple[float, float] | None = None

    def seconds_until(self, arrival_epoch_seconds: float) -> float:
        """Return how long it takes until what arrived then is due; negative if it is overdue."""
        if not self._speed:
            return 0.0
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now, arrival_epoch_seconds
        began, first_arrival = self._began
        return began + (arrival_epoch_seconds - first_arrival) / self._speed - now
