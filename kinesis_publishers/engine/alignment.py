"""Keeps shards together in time: which shard holds the others back, and what is delivered.

A shard that is ahead moves the watermark of an application past unread records of the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from attrs import define, field, frozen

_K = TypeVar("_K", bound=Hashable)

#: A record is late if an earlier micro-batch had one that arrived this much later. Answers at the
#: tip, which come at different times, cause smaller differences.
LATE_AFTER = timedelta(seconds=15)

_LONGEST_PAUSE_SECONDS = 5.0


@frozen
class Front:
    """The progress of one shard in time.

    Attributes:
        until: all records that arrived before this instant have been read; ``None`` if unknown.
        is_idle: whether it has no unread records, and holds no other shard back.
        is_at_tip: whether it has no unread records, although it may hold others back.
    """

    until: datetime | None
    is_idle: bool = False
    is_at_tip: bool = False


def common_instant(fronts: Iterable[Front]) -> datetime | None:
    """Return the instant that all shards have reached.

    It is the least of those that are not idle. If all are idle, nothing is unread, and it is the
    greatest. It is ``None`` without shards, or if a shard that is not idle is unknown.
    """
    fronts = list(fronts)
    active = [one.until for one in fronts if not one.is_idle]
    if not active:
        return latest_known(*(one.until for one in fronts))
    known = [one for one in active if one is not None]
    return min(known) if len(known) == len(active) else None


def latest_known(*instants: datetime | None) -> datetime | None:
    """Return the latest of those that are not ``None``, or ``None``."""
    return max((one for one in instants if one is not None), default=None)


def count_before(arrivals: Sequence[float], instant: datetime) -> int:
    """Return how many records precede the first one that arrived at or after ``instant``.

    ``arrivals`` are in seconds since 1970.
    """
    seconds = instant.timestamp()
    later = (at for at, arrival in enumerate(arrivals) if arrival >= seconds)
    return next(later, len(arrivals))


@define(eq=False)
class Patience(Generic[_K]):
    """Finds the shards that have held the others back for too long.

    Args:
        seconds: the limit for a shard that makes no progress while it is read and others wait.
    """

    seconds: float
    # Where each holder stands, and for how long it has been read there.
    _holders: dict[_K, tuple[datetime | None, float]] = field(factory=dict, init=False)
    _asked_at: float = field(default=math.inf, init=False)

    def lost(
        self, fronts: Mapping[_K, Front], now: float, *, excused: Collection[_K] = ()
    ) -> set[_K]:
        """Return the shards that the others no longer wait for; call it while shards are read.

        Args:
            fronts: the progress of all shards.
            now: seconds of the monotonic clock.
            excused: shards that wait for an external reason, such as a lack of room.
        """
        # No shard is read while the engine works on a micro-batch.
        passed = min(max(0.0, now - self._asked_at), _LONGEST_PAUSE_SECONDS)
        self._asked_at, before, self._holders = now, self._holders, {}
        # Every shard without progress is timed: once the last holder is lost, the next one holds.
        for key, front in fronts.items():
            if not front.is_idle and key not in excused:
                is_stuck = key in before and before[key][0] == front.until
                self._holders[key] = front.until, before[key][1] + passed if is_stuck else 0.0
        if len(fronts) < 2:
            return set()
        return {key for key, (_, stood) in self._holders.items() if stood >= self.seconds}


class Weight(NamedTuple):
    """The weight of one Kinesis record: an aggregate has several user records and is not split."""

    payload_bytes: int
    records: int = 1


@frozen(kw_only=True)
class ReadLimit:
    """The limits of one round over all shards; ``None`` is no limit.

    While fewer than ``min_records`` wait, a round has no records.
    """

    min_records: int = 0
    records: int | None = None
    payload_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self.records is None and self.payload_bytes is None


class Lane(NamedTuple):
    """The waiting records of one shard, in order; all lanes share the unit of ``arrivals``."""

    arrivals: Iterable[float]
    weights: Iterable[Weight]

    def timed(self, index: int) -> Iterator[tuple[float, int, Weight]]:
        """Yield for each record the latest arrival up to it, ``index``, and its weight."""
        # Within a shard arrival times are not monotonic.
        for latest, weight in zip(accumulate(self.arrivals, max), self.weights, strict=True):
            yield latest, index, weight


def admit(lanes: Sequence[Lane], limit: ReadLimit, until: float = math.inf) -> list[int]:
    """Return how many records of each lane are delivered, in the order of arrival.

    The limit is exact to the record. A record that exceeds it by itself is delivered alone:
    otherwise it would block its shard forever. Arrivals after ``until`` wait.
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
