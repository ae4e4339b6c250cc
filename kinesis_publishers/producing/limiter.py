"""Limits the rate of one shard; a pure function of the time that the caller passes."""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

# The quotas of a shard per second: records, and bytes including partition keys.
RECORDS_PER_SECOND: Final = 1000.0
BYTES_PER_SECOND: Final = 1024.0 * 1024.0
# The burst after a pause, in seconds of the rate: the service counts by the second, and a larger
# burst would not fit into a second that began with a full allowance.
_BURST_SECONDS: Final = 0.05
# A smaller amount is not worth a call, unless nothing else waits.
_CALL_SECONDS: Final = 0.025
# Additive increase and multiplicative decrease give producers that share a shard equal shares. A
# partly refused call lowers the rate by half of the refused part.
_GAIN_PER_SECOND: Final = 0.1
_LOSS: Final = 0.5
_LEAST: Final = 0.05


@define(eq=False)
class ShardLimiter:
    """The allowance of one shard: it grows with time, and sending uses it up.

    Args:
        rate: the share of a shard's quota to use.
        adapts: whether refusals lower the rate, to a ``factor`` of it.
        at: the time, in seconds of a monotonic clock.
    """

    _rate: float
    _adapts: bool
    _at: float
    factor: float = field(default=1.0, init=False)
    # In seconds of the current rate; negative after an entry that was larger than the burst.
    _for_records: float = field(default=_BURST_SECONDS, init=False)
    _for_bytes: float = field(default=_BURST_SECONDS, init=False)
    _lowered_at: float = field(default=-math.inf, init=False)

    def delay(self, records: int, size: int, largest: int, now: float) -> float:
        """Return the seconds until the waiting entries may have a call.

        ``size`` are their bytes, and ``largest`` those of the first entry.
        """
        self._refill(now)
        rate = self._rate * self.factor
        needed = min(records / (RECORDS_PER_SECOND * rate), _CALL_SECONDS)
        needed_bytes = max(
            min(size / (BYTES_PER_SECOND * rate), _CALL_SECONDS),
            # An entry that is larger than the burst goes into debt.
            min(largest / (BYTES_PER_SECOND * rate), _BURST_SECONDS),
        )
        return max(needed - self._for_records, needed_bytes - self._for_bytes, 0.0)

    def allowance(self) -> tuple[int, int]:
        """Return the entries and bytes that may be sent now; the first may have any size."""
        rate = self._rate * self.factor
        records = int(self._for_records * RECORDS_PER_SECOND * rate)
        return max(1, records), int(self._for_bytes * BYTES_PER_SECOND * rate)

    def take(self, records: int, size: int) -> None:
        rate = self._rate * self.factor
        self._for_records -= records / (RECORDS_PER_SECOND * rate)
        self._for_bytes -= size / (BYTES_PER_SECOND * rate)

    def lower(self, refused_share: float, *, sent_at: float, now: float) -> None:
        """Lower the rate: a share of the call of ``sent_at`` was throttled."""
        # A call from before the rate was lowered says nothing about the lower rate.
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
