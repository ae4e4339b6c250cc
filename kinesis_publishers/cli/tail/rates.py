"""How much was read, and how fast: sums and rates over the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from attrs import define, field, frozen

__all__ = ["Meter", "Rate"]

_WINDOW_SECONDS: Final = 10.0
# A rate over less would jump.
_SHORTEST_SECONDS: Final = 1.0


@frozen
class Rate:
    """How fast something is read.

    Attributes:
        records: records per second.
        payload_bytes: payload bytes per second.
    """

    records: float = 0.0
    payload_bytes: float = 0.0

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.records + other.records, self.payload_bytes + other.payload_bytes)


@define
class Meter:
    """Counts what is read from one shard.

    Args:
        started_at: when reading began, in seconds of the monotonic clock.

    Attributes:
        records: all records so far.
        payload_bytes: the bytes of all payloads so far.
    """

    _started_at: float
    records: int = field(default=0, init=False)
    payload_bytes: int = field(default=0, init=False)
    _recent: deque[tuple[float, int, int]] = field(factory=deque, init=False)

    def count(self, records: int, payload_bytes: int, *, now: float) -> None:
        """Add what was read at ``now``, in seconds of the monotonic clock."""
        self.records += records
        self.payload_bytes += payload_bytes
        self._recent.append((now, records, payload_bytes))
        self._forget(now)

    def rate(self, now: float) -> Rate:
        """Return the rate over the last ten seconds, or since reading began."""
        self._forget(now)
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._started_at))
        return Rate(
            sum(records for _, records, _ in self._recent) / seconds,
            sum(payload_bytes for _, _, payload_bytes in self._recent) / seconds,
        )

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now - _WINDOW_SECONDS:
            self._recent.popleft()
