"""AWS's limits per shard. No setting exceeds them."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import Final

from attrs import define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.model import ShardKey

#: Per operation and shard; the same for GetRecords and GetShardIterator (AWS API reference).
CALLS_PER_SECOND: Final = 5
# After an answer of 10 MB, calls are refused for 5 s (AWS API reference, GetRecords). If the rate
# is 2 MiB/s, the difference covers a call that travels faster than the one before.
_BYTES_PER_SECOND = 2_000_000
# A sleep may end this much too early.
_CLOCK_SECONDS = 1e-6
# After this time an unused entry is removed.
_IDLE_SECONDS = 60.0


@define(eq=False)
class _Turns:
    began_at: deque[float] = field(factory=lambda: deque(maxlen=CALLS_PER_SECOND), init=False)
    # When the byte rate allows the next call.
    settled_at: float = field(default=-math.inf, init=False)

    @property
    def free_at(self) -> float:
        is_used_up = len(self.began_at) == CALLS_PER_SECOND
        return max(self.settled_at, self.began_at[0] + 1.0 if is_used_up else -math.inf)


class ShardQuota:
    """Keeps calls to shards within AWS's limits, if it ``is_kept``: five a second, and 2 MB/s.

    It never waits: a caller that holds room must not wait.
    """

    def __init__(self, clock: Clock, *, is_kept: bool = True) -> None:
        self._clock = clock
        self.is_kept = is_kept
        self._turns: dict[tuple[ShardKey, str], _Turns] = defaultdict(_Turns)
        self._tidied_at = clock.monotonic()

    def seconds_left(self, shard: ShardKey, operation: str) -> float:
        """Return how long to wait before ``shard`` may be called, 0 if it may be called now."""
        turns = self._turns.get((shard, operation))
        left = 0.0 if turns is None else turns.free_at - self._clock.monotonic()
        return left if left > _CLOCK_SECONDS else 0.0

    def take(self, shard: ShardKey, operation: str) -> None:
        """Count a call that is about to be made. A refused call counts, too."""
        if not self.is_kept:
            return
        now = self._clock.monotonic()
        self._turns[shard, operation].began_at.append(now)
        if now > self._tidied_at + _IDLE_SECONDS:
            # Drop the entries of shards that have ended.
            idle = [key for key, one in self._turns.items() if one.began_at[-1] < self._tidied_at]
            for key in idle:
                del self._turns[key]
            self._tidied_at = now

    def charge(self, shard: ShardKey, operation: str, payload_bytes: int) -> None:
        turns = self._turns.get((shard, operation))
        if turns is not None:
            turns.settled_at = turns.began_at[-1] + payload_bytes / _BYTES_PER_SECOND
