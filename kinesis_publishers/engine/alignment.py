"""Shards that stay together in time: who holds the others back, and what is handed out. Pure.

A shard that is read ahead of the others moves the watermark of an application past records of the
others that are still unread. The functions here keep all shards up to one common instant.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge
from typing import Generic, NamedTuple, TypeVar

from attrs import define, field, frozen

_K = TypeVar("_K", bound=Hashable)

#: A record is late if one that arrived so much later was handed out before. Less than that comes of
#: answers at the tip, which are given at different times.
LATE_AFTER = timedelta(seconds=15)

_LONGEST_PAUSE_SECONDS = 5.0


@frozen
class Front:
    """How far one shard has come.

    Attributes:
        until: all of its records that arrived before this instant have come; ``None`` if nothing is
            known of it.
        is_idle: whether nothing of it waits to be read, so that it holds no other shard back.
        is_at_tip: whether nothing of it waits to be read, although it may hold others back.
    """

    until: datetime | None
    is_idle: bool = False
    is_at_tip: bool = False


def common_instant(fronts: Iterable[Front]) -> datetime | None:
    """Return the instant up to which all shards have come.

    That is the least of those that are not idle. If all are idle, nothing is unread: then it is the
    greatest. ``None`` if there are no shards, or nothing is known of one that is not idle.
    """
    active: list[datetime] = []
    idle: list[datetime] = []
    for front in fronts:
        if front.until is not None:
            (idle if front.is_idle else active).append(front.until)
        elif not front.is_idle:
            return None
    return min(active) if active else max(idle, default=None)


def latest_known(*instants: datetime | None) -> datetime | None:
    """Return the latest of those that are not ``None``, or ``None``."""
    return max((one for one in instants if one is not None), default=None)


def is_ahead(front: Front, common: datetime | None, bound: timedelta) -> bool:
    """Say whether a shard is further than ``bound`` ahead of the common instant."""
    if front.until is None:
        return False
    return common is None or front.until - common > bound


def count_before(arrivals: Sequence[float], instant: datetime) -> int:
    """Return how many records precede the first one that arrived at or after ``instant``.

    Args:
        arrivals: when each arrived, in seconds since 1970.
    """
    seconds = instant.timestamp()
    later = (at for at, arrival in enumerate(arrivals) if arrival >= seconds)
    return next(later, len(arrivals))


@define(eq=False)
class Patience(Generic[_K]):
    """Finds the shards that have held the others back for too long.

    Args:
        seconds: how long a shard may stand at one place while it is read and others wait for it.
    """

    seconds: float
    # Where each holder stands, and for how long it has been read there.
    _holders: dict[_K, tuple[datetime | None, float]] = field(factory=dict, init=False)
    _asked_at: float = field(default=math.inf, init=False)

    def lost(
        self, fronts: Mapping[_K, Front], now: float, *, excused: Collection[_K] = ()
    ) -> set[_K]:
        """Return the shards without which the others go on; asked while they are read.

        Args:
            fronts: of all shards.
            now: seconds of the monotonic clock.
            excused: shards that stand for another reason than their own, as for lack of room.
        """
        # No shard is read while the engine works on a micro-batch.
        passed = min(max(0.0, now - self._asked_at), _LONGEST_PAUSE_SECONDS)
        self._asked_at = now
        active = {
            key: front.until
            for key, front in fronts.items()
            if not front.is_idle and key not in excused
        }
        before = self._holders
        # All that make no progress are timed: once the last holder is lost, the next one holds.
        self._holders = {
            key: (until, before[key][1] + passed)
            if key in before and before[key][0] == until
            else (until, 0.0)
            for key, until in active.items()
        }
        if len(fronts) < 2:
            return set()
        return {key for key, (_, stood) in self._holders.items() if stood >= self.seconds}


class Weight(NamedTuple):
    """What one Kinesis record counts for: an aggregate is several, and is admitted whole."""

    payload_bytes: int
    records: int = 1


@frozen(kw_only=True)
class ReadLimit:
    """The most that one round may have of all shards together; ``None`` is no limit.

    While fewer than ``min_records`` wait, a round has none.
    """

    min_records: int = 0
    records: int | None = None
    payload_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.records is None and self.payload_bytes is None


class Lane(NamedTuple):
    """The records of one shard that wait, in their order.

    Attributes:
        arrivals: when each arrived, in any unit that all lanes share.
        weights: what each counts for.
    """

    arrivals: Iterable[float]
    weights: Iterable[Weight]

    def timed(self, index: int) -> Iterator[tuple[float, int, Weight]]:
        """Yield for each record the latest arrival up to it, ``index``, and what it counts for."""
        latest = -math.inf
        for arrival, weight in zip(self.arrivals, self.weights, strict=True):
            # Within a shard arrival times are not monotonic.
            latest = max(latest, arrival)
            yield latest, index, weight


def admit(lanes: Sequence[Lane], limit: ReadLimit, until: float = math.inf) -> list[int]:
    """Return how many records of each lane are handed out, in the order of arrival over all.

    Args:
        lanes: what waits.
        limit: holds to the record. One that alone exceeds it goes through, alone: otherwise
            nothing ever would.
        until: what arrived later waits.
    """
    counts = [0] * len(lanes)
    records = math.inf if limit.records is None else limit.records
    payload_bytes = math.inf if limit.payload_bytes is None else limit.payload_bytes
    is_first = True
    for arrival, index, weight in merge(*(lane.timed(n) for n, lane in enumerate(lanes))):
        records, payload_bytes = records - weight.records, payload_bytes - weight.payload_bytes
        if arrival > until or not (is_first or (records >= 0 and payload_bytes >= 0)):
            break
        is_first = False
        counts[index] += 1
    return counts
