"""Sliding windows that decide whether a call is within its rate; time is passed in."""

from __future__ import annotations

from collections import deque

from attrs import define, field

__all__ = ["RateWindow", "Rates"]

# The client paces departures, the server sees arrivals: without some tolerance a client with a
# period of exactly 200 ms would be refused whenever one request travels faster than the one before.
_WINDOW_SECONDS = 0.95


@define
class RateWindow:
    """Amounts taken within the last second."""

    _taken: deque[tuple[float, float]] = field(factory=deque)
    _total: float = 0.0
    _blocked_until: float = float("-inf")

    def total(self, now: float) -> float:
        while self._taken and now >= self._taken[0][0] + _WINDOW_SECONDS:
            self._total -= self._taken.popleft()[1]
        return self._total

    def seconds_until_fits(self, now: float, amount: float, most: float) -> float:
        """Return how long to wait until ``amount`` more is within ``most``.

        An empty window takes any amount: what exceeds ``most`` by itself passes alone.
        """
        total = self.total(now)
        free_at = max(now, self._blocked_until)
        for taken_at, taken in self._taken:
            if total + amount <= most:
                break
            total -= taken
            free_at = max(free_at, taken_at + _WINDOW_SECONDS)
        return free_at - now

    def is_blocked(self, now: float) -> bool:
        return now < self._blocked_until

    def take(self, now: float, amount: float = 1.0) -> None:
        self._taken.append((now, amount))
        self._total += amount

    def block_until(self, instant: float) -> None:
        self._blocked_until = max(self._blocked_until, instant)


@define
class Rates:
    """One window per key; a key names what is limited, e.g. ``("GetRecords", stream, shard)``."""

    _windows: dict[tuple[str, ...], RateWindow] = field(factory=dict)

    def window(self, *key: str) -> RateWindow:
        found = self._windows.get(key)
        if found is None:
            found = self._windows[key] = RateWindow()
        return found

    def take_call(self, key: tuple[str, ...], per_second: int | None, now: float) -> bool:
        """Count one call; answer whether it is within ``per_second``. A refused call is free."""
        if per_second is None:
            return True
        window = self.window(*key)
        if window.total(now) >= per_second:
            return False
        window.take(now)
        return True

    def clear(self) -> None:
        self._windows.clear()
