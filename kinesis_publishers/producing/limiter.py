"""How fast records may be sent to one shard: pure, the caller knows the time."""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

# What a shard takes in a second (Kinesis quotas), its records and their bytes with partition keys.
RECORDS_PER_SECOND: Final = 1000.0
BYTES_PER_SECOND: Final = 1024.0 * 1024.0
# What may be sent at once after a pause, in seconds of the rate: the service counts by the second,
# and more would not fit into the second that began with a full allowance.
_BURST_SECONDS: Final = 0.05
# Less is not worth a call, unless it is all that waits.
_CALL_SECONDS: Final = 0.025
# Additive increase and multiplicative decrease: producers that share a shard end up with equal
# shares. A call of which a part was refused lowers the rate by half of that part.
_GAIN_PER_SECOND: Final = 0.1
_LOSS: Final = 0.5
_LEAST: Final = 0.05


@define(eq=False)
class ShardLimiter:
    """The allowance of one shard: it grows with time, and what is sent uses it up.

    Args:
        rate: how much of what a shard takes may be sent to it.
        adapts: whether the rate follows the shard's refusals.
        at: the time, in seconds of a monotonic clock.

    Attributes:
        factor: the part of the rate that applies now.
    """

    _rate: float
    _adapts: bool
    _at: float
    factor: float = field(default=1.0, init=False)
    # In seconds of the rate that applies; below 0 after an entry that was larger than the burst.
    _for_records: float = field(default=_BURST_SECONDS, init=False)
    _for_bytes: float = field(default=_BURST_SECONDS, init=False)
    _lowered_at: float = field(default=-math.inf, init=False)

    def delay(self, records: int, size: int, largest: int, now: float) -> float:
        """Return how many seconds what waits has to wait for a call of its own.

        Args:
            records, size: how many entries wait, and their bytes.
            largest: the bytes of the first one.
        """
        self._refill(now)
        rate = self._rate * self.factor
        needed = min(records / (RECORDS_PER_SECOND * rate), _CALL_SECONDS)
        needed_bytes = max(
            min(size / (BYTES_PER_SECOND * rate), _CALL_SECONDS),
            # One that is larger than all that can be saved up goes into debt.
            min(largest / (BYTES_PER_SECOND * rate), _BURST_SECONDS),
        )
        return max(needed - self._for_records, needed_bytes - self._for_bytes, 0.0)

    def allowance(self) -> tuple[int, int]:
        """Return how many entries, and bytes, may be sent now; a first one of any size may."""
        rate = self._rate * self.factor
        return (
            max(1, int(self._for_records * RECORDS_PER_SECOND * rate)),
            int(self._for_bytes * BYTES_PER_SECOND * rate),
        )

    def take(self, records: int, size: int) -> None:
        """Use the allowance up for entries that are sent."""
        rate = self._rate * self.factor
        self._for_records -= records / (RECORDS_PER_SECOND * rate)
        self._for_bytes -= size / (BYTES_PER_SECOND * rate)

    def lower(self, refused_share: float, *, sent_at: float, now: float) -> None:
        """Send less: a share of a call that was sent at ``sent_at`` was throttled."""
        # A call that was under way before the rate was lowered says nothing about the lower one.
        if self._adapts and sent_at > self._lowered_at:
            self._refill(now)
            self.factor = max(_LEAST, self.factor * (1.0 - _LOSS * refused_share))
            self._lowered_at = now

    def _refill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._at = now
            self._for_records = min(_BURST_SECONDS, self._for_records + passed)
            self._for_bytes = min(_BURST_SECONDS, self._for_bytes + passed)
            if self.factor < 1.0:
                self.factor = min(1.0, self.factor + _GAIN_PER_SECOND * passed)
