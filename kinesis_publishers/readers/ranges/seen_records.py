"""What was seen of a shard beyond the ranges that were made of it; makes ranges. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from attrs import define, evolve, field, frozen

from kinesis_publishers.engine.alignment import Lane, Weight, count_before, latest_known
from kinesis_publishers.model import (
    RangeSize,
    RecordBatch,
    SequenceNumber,
    ShardProgress,
    ShardRange,
    StartingPosition,
    resume_after,
)
from kinesis_publishers.readers.ranges.rules import NO_SAMPLE, Sample, expected_bytes

# Enough for a task, where more arrives at one instant than looks show.
_DENSE_BYTES = 2 * 1024 * 1024


@frozen(kw_only=True)
class RangeEnd:
    """Where a range ends that begins where the shard stood.

    Attributes:
        progress: how far the shard is read with the range included.
        first: the first record of the range, if it was seen.
        first_arrival: its arrival time.
        payload_bytes: the size of the range; ``None`` if parts of it were not seen.
        size: what is known about the number of records.
        user_records: their approximate number after deaggregation.
        cuts: where it may be divided for several tasks: ends that it could have had, in order.
    """

    progress: ShardProgress
    first: SequenceNumber | None = None
    first_arrival: datetime | None = None
    payload_bytes: int | None = None
    size: RangeSize | None = None
    user_records: int = 0
    cuts: Sequence[RangeEnd] = ()

    def divided(self, whole: ShardRange) -> list[tuple[ShardRange, int]]:
        """Return the pieces of the range that ends here, in order, with their expected bytes."""
        pieces, rest = [], whole
        done_bytes = done_records = 0
        for end in (*self.cuts, self):
            is_last = end is self
            last = whole.end if is_last else end.progress.processed
            size, payload_bytes = end.size, end.payload_bytes or 0
            if size is not None and size.records is not None:
                done_records, size = size.records, evolve(size, records=size.records - done_records)
            excludes_end = is_last and whole.excludes_end
            piece = evolve(rest, end=last, size=size, excludes_end=excludes_end)
            pieces.append((piece, payload_bytes - done_bytes))
            done_bytes, progress = payload_bytes, end.progress
            rest = ShardRange(
                shard=whole.shard, start=progress.position, end=None, as_of=progress.as_of
            )
        return pieces

    def guessed(self, sample: Sample | None, begun: datetime | None, *, is_dense: bool) -> RangeEnd:
        """Return the end with the likely sizes of a range that began at ``begun``."""
        assert self.size is not None, "a range that was seen has a size"
        expected = expected_bytes(sample, begun, self.progress.as_of)
        sample, records = sample or NO_SAMPLE, None
        if is_dense:
            # Nothing tells how many come at one instant.
            expected = max(expected, _DENSE_BYTES)
        else:
            # No look is exact: a range that is cut short by a tenth costs a call.
            records = max(1, int(1.1 * expected / sample.record_bytes))
        return evolve(
            self,
            payload_bytes=expected,
            size=evolve(self.size, records=records),
            user_records=int(expected / sample.user_record_bytes),
            cuts=tuple(cut.guessed(sample, begun, is_dense=is_dense) for cut in self.cuts),
        )


@define(eq=False)
class SeenRecords:
    """Records that follow a place in a shard: all of them, or those behind a gap."""

    #: How far ranges were made.
    start: ShardProgress
    has_ended: bool = field(default=False, init=False)
    #: All that is in the gap arrived before this instant; ``None`` without a gap.
    gap_until: datetime | None = field(default=None, init=False)
    # The first record, and when it arrived, if it is in front of the gap; and the last one there.
    _first: SequenceNumber | None = field(default=None, init=False)
    _first_arrival: datetime | None = field(default=None, init=False)
    _last_in_front: SequenceNumber | None = field(default=None, init=False)
    # One entry per record behind the gap; without one, behind the start.
    _numbers: list[str] = field(factory=list, init=False)
    _weights: list[Weight] = field(factory=list, init=False)
    _arrivals: list[float] = field(factory=list, init=False)
    _latest: datetime | None = field(default=None, init=False)
    _cuts: list[RangeEnd] = field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._numbers) or self.gap_until is not None or self.has_ended

    @property
    def needs_cuts(self) -> bool:
        """Whether there is a gap in which nothing was looked at."""
        return self.gap_until is not None and not self._cuts

    @property
    def lane(self) -> Lane:
        """The records behind the gap; without one, behind the start."""
        return Lane(self._arrivals, self._weights)

    @property
    def latest_arrival(self) -> datetime | None:
        """The latest arrival of what was seen or is in ranges; ``None`` if unknown."""
        return latest_known(self.start.as_of, self._latest)

    @property
    def last(self) -> SequenceNumber | None:
        """The last record that was seen, or is in ranges."""
        if self._numbers:
            return SequenceNumber(self._numbers[-1])
        return self._last_in_front or self.start.processed

    @property
    def resume(self) -> StartingPosition:
        """Where to read on."""
        if not self._numbers and self._last_in_front is None:
            return self.start.position
        assert self.last is not None
        return resume_after(self.last)

    @property
    def first_arrival(self) -> datetime | None:
        """The arrival of the first of these records, if it was seen."""
        if self.gap_until is None and self._arrivals:
            return _instant_of(self._arrivals[0])
        return self._first_arrival

    @property
    def begun(self) -> datetime | None:
        """The arrival of the first of these records, or of the one before it, if known."""
        return self.start.as_of or self.first_arrival

    @property
    def waiting_since(self) -> datetime | None:
        """The approximate arrival of the first waiting record; ``None`` without one, or unknown."""
        return (self.first_arrival or self.start.as_of) if self else None

    def reaches(self, instant: datetime) -> bool:
        """Return whether a record shows that all arrivals before ``instant`` precede it."""
        if self.gap_until == instant:
            return True
        return self._latest is not None and self._latest >= instant

    @property
    def user_records(self) -> int:
        """How many user records the records behind the gap have."""
        return sum(one.records for one in self._weights)

    def add(
        self, fresh: RecordBatch, counts: Sequence[int], *, since: datetime | None = None
    ) -> None:
        """Add records that follow the seen ones; ``counts`` says how many user records each has.

        With ``since`` they are the first ones since that instant, and there is a gap before them.
        """
        if since is not None:
            if self.gap_until is None and self._numbers:
                self._first = SequenceNumber(self._numbers[0])
                self._first_arrival = _instant_of(self._arrivals[0])
                self._last_in_front = SequenceNumber(self._numbers[-1])
            self.gap_until = since
            self._numbers, self._weights, self._arrivals = [], [], []
        self._numbers += fresh.sequence_numbers
        self._weights += map(Weight, map(len, fresh.payloads), counts)
        self._arrivals += fresh.arrival_epoch_seconds
        self._latest = latest_known(self._latest, fresh.last_arrival)

    def cut(self, page: RecordBatch, since: datetime) -> None:
        """Note the first record since an instant, if it is in the gap and after earlier cuts."""
        before = self._cuts[-1].progress if self._cuts else self.start
        after = before.processed if self._cuts else self._last_in_front or before.processed
        number = page.last_sequence_number
        if after is None or number is None or not after < number:
            return
        if not self._numbers or number < SequenceNumber(self._numbers[0]):
            as_of = latest_known(before.as_of, page.last_arrival)
            progress = ShardProgress(position=resume_after(number), as_of=as_of)
            size = RangeSize(records=None, seen_since=since, seen_records=len(page))
            self._cuts.append(RangeEnd(progress=progress, size=size))

    def count_before(self, instant: datetime) -> int:
        """Return how many of the records come before the first one that arrived since then."""
        return count_before(self._arrivals, instant)

    def count_late(self, instant: datetime, count: int | None, sample: Sample | None) -> int:
        """Return about how many user records of :meth:`take` arrived before ``instant``."""
        late = self._weights[:count][: self.count_before(instant)]
        records = sum(one.records for one in late)
        if self.gap_until is not None:
            size = expected_bytes(sample, self.begun, min(self.gap_until, instant))
            records += int(size / (sample or NO_SAMPLE).user_record_bytes)
        return records

    def has_any_before(self, instant: datetime) -> bool:
        """Return whether a record arrived before ``instant``, or the shard ends here."""
        is_end = self.has_ended and not self._numbers
        limit = instant.timestamp()
        return self.gap_until is not None or is_end or any(one < limit for one in self._arrivals)

    def take(self, count: int | None = None) -> tuple[RangeEnd | None, SeenRecords]:
        """Return the end of a range of this, ``None`` if it would be empty, and the rest.

        With ``count`` the range has the gap and as many records behind it.
        """
        total = len(self._numbers)
        count = total if count is None else min(count, total)
        is_ended = self.has_ended and count == total
        if not (count or self.gap_until or is_ended):
            return None, self
        progress = evolve(self._progress_at(count), is_ended=is_ended)
        is_seen = self.gap_until is None and count > 0
        weights, payload_bytes = self._weights[:count], None
        if self.gap_until is None:
            size = RangeSize(records=count)
            payload_bytes = sum(one.payload_bytes for one in weights)
        else:
            # The record that the range ends before has to come, too.
            size = RangeSize(records=None, seen_since=self.gap_until, seen_records=max(1, count))
        end = RangeEnd(
            progress=progress,
            first=SequenceNumber(self._numbers[0]) if is_seen else self._first,
            first_arrival=self.first_arrival,
            payload_bytes=payload_bytes,
            size=size,
            user_records=sum(weight.records for weight in weights),
            cuts=tuple(self._cuts),
        )
        return end, self._rest(progress, count)

    def _progress_at(self, count: int) -> ShardProgress:
        if count:
            latest = _instant_of(max(self._arrivals[:count]))
            position = resume_after(SequenceNumber(self._numbers[count - 1]))
            return ShardProgress(position=position, as_of=latest_known(self.start.as_of, latest))
        if not self._numbers:
            return self.start
        position = StartingPosition.at(SequenceNumber(self._numbers[0]))
        return ShardProgress(
            position=position, as_of=latest_known(self.start.as_of, self.gap_until)
        )

    def _rest(self, progress: ShardProgress, count: int) -> SeenRecords:
        rest = SeenRecords(progress)
        rest.has_ended = self.has_ended and not progress.is_ended
        rest._numbers, rest._weights = self._numbers[count:], self._weights[count:]
        rest._arrivals = self._arrivals[count:]
        if rest._arrivals:
            rest._latest = _instant_of(max(rest._arrivals))
        return rest

    def renew(self, seen: datetime) -> None:
        """Remember that everything that arrived before ``seen`` is in ranges."""
        self.start = evolve(self.start, as_of=latest_known(self.start.as_of, seen))


def _instant_of(epoch_seconds: float) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, UTC)
