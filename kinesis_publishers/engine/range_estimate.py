"""Estimates how many records of a range are still to come; a wrong estimate loses no record."""

from __future__ import annotations

import math

from attrs import define, field

from kinesis_publishers.model import RangeSize, RecordBatch

# The least to ask for after too low an estimate: a call costs more than records fetched in vain.
_LEAST_SHARE = 0.05
_LEAST_RECORDS = 100
_LEAST_BYTES = 256 * 1024
# If arrival times do not help, expect this share of further records.
_INSTANT_SHARE = 0.1
# The margin of an estimate by time.
_MARGIN = 1.05
# The write limit of a shard (AWS service limits).
_SHARD_RECORDS_PER_SECOND = 1000
# The resolution of arrival times.
_INSTANT_SECONDS = 0.001


@define(eq=False)
class RangeEstimate:
    """Counts the records of a range, and estimates how many to ask for.

    ``size`` is what the planner of the range knows.
    """

    _size: RangeSize | None
    _records: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _first_arrival: float = field(default=math.inf, init=False)
    _last_arrival: float = field(default=-math.inf, init=False)
    # The last page.
    _page_records: int = field(default=0, init=False)
    _page_begin: float = field(default=math.inf, init=False)
    # Records that the planner has seen.
    _seen_records: int = field(default=0, init=False)

    def add(self, batch: RecordBatch) -> None:
        """Count Kinesis records of the range that were read."""
        arrivals = batch.arrival_epoch_seconds
        if self._size is None or not arrivals:
            return
        self._records += len(batch)
        self._bytes += batch.payload_bytes
        self._first_arrival = min(self._first_arrival, arrivals[0])
        self._page_records, self._page_begin = len(batch), min(arrivals)
        latest = max(arrivals)
        self._last_arrival = max(self._last_arrival, latest)
        seen_since = self._size.seen_since
        if seen_since is not None and latest >= (since := seen_since.timestamp()):
            self._seen_records += sum(map(since.__le__, arrivals))

    @property
    def records_wanted(self) -> int | None:
        """The number of records to request; ``None`` if unknown."""
        size = self._size
        if size is None:
            return None
        if size.seen_since is not None and self._records:
            left = self._left_by_time(size.seen_since.timestamp())
            return math.ceil(max(left + size.seen_records - self._seen_records, self._least))
        if size.records is None:
            return None
        left = size.records - self._records
        return left if left > 0 else self._least

    def _left_by_time(self, until: float) -> float:
        """Return the estimated rest of the records that the planner has not seen."""
        seconds = until - self._last_arrival - _INSTANT_SECONDS
        if seconds <= 0:
            return 0.0
        span = self._last_arrival - self._first_arrival
        if span <= 0:
            return self._records * _INSTANT_SHARE
        mean = self._records / (span + _INSTANT_SECONDS)
        # The mean of a long silence and a burst would ask for a hundred records of the burst each
        # time, with five calls a second.
        latest = self._page_records / (self._last_arrival - self._page_begin + _INSTANT_SECONDS)
        return _MARGIN * seconds * max(mean, min(latest, _SHARD_RECORDS_PER_SECOND))

    @property
    def _least(self) -> int:
        affordable = _LEAST_BYTES * self._records // max(1, self._bytes)
        return max(1, min(_LEAST_RECORDS, affordable), int(_LEAST_SHARE * self._records))
