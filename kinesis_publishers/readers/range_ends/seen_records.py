"""What was seen of a shard beyond the ranges that were made of it; makes ranges. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from attrs import define, evolve, field, frozen

from kinesis_publishers.engine.alignment import Weight
from kinesis_publishers.model import (
    RangeSize,
    RecordBatch,
    SequenceNumber,
    ShardProgress,
    ShardRange,
    resume_after,
)
from kinesis_publishers.readers.range_ends.rules import (
    NO_SAMPLE,
    Sample,
    expected_bytes,
    sampled,
)

# What is worth a task, where more comes at one instant than looks tell.
_DENSE_BYTES = 2 * 1024 * 1024


@frozen(kw_only=True)
class RangeEnd:
    """Where a range ends that begins where the shard stood.

    Attributes:
        progress: how far the shard is read with the range included.
        first: the first record of the range, if it was seen.
        first_arrival: when that one arrived.
        payload_bytes: how large the range is, as far as it was seen; ``None`` if parts were not.
        size: what is known about the number of records.
        user_records: about how many it is delivered as.
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

    def guessed(
        self, sample: Sample | None, begun: datetime | None, now: datetime, *, is_dense: bool
    ) -> RangeEnd:
        """Return the end with the sizes that are likely of a range that began then."""
        assert self.size is not None, "the sighting says what it has seen"
        expected = expected_bytes(sample, begun, self.progress, now)
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
            cuts=tuple(cut.guessed(sample, begun, now, is_dense=is_dense) for cut in self.cuts),
        )


@define(eq=False)
class Sighting:
    """Records that follow a place in a shard, all of them or with a gap before the last ones."""

    #: How far ranges were made.
    start: ShardProgress
    has_ended: bool = field(default=False, init=False)
    _is_gap: bool = field(default=False, init=False)
    # What was seen behind the gap.
    _seen_since: datetime | None = field(default=None, init=False)
    _seen_records: int = field(default=0, init=False)
    _first: SequenceNumber | None = field(default=None, init=False)
    _last: SequenceNumber | None = field(default=None, init=False)
    _first_arrival: datetime | None = field(default=None, init=False)
    _last_arrival: datetime | None = field(default=None, init=False)
    # One entry per record, unless there is a gap.
    _numbers: list[str] = field(factory=list, init=False)
    _weights: list[Weight] = field(factory=list, init=False)
    _arrivals: list[float] = field(factory=list, init=False)
    _cuts: list[RangeEnd] = field(factory=list, init=False)

    def __bool__(self) -> bool:
        return self._last is not None or self.has_ended

    @property
    def needs_cuts(self) -> bool:
        """Whether there is a gap of which nothing was looked at."""
        return self._is_gap and not self._cuts

    @property
    def weights(self) -> Sequence[Weight]:
        """What each record counts for; nothing if there is a gap."""
        return self._weights

    @property
    def reached(self) -> ShardProgress:
        """How far the shard is read once all of this is in a range."""
        if self._last is None:
            return self.start
        instants = (self.start.as_of, self._last_arrival)
        return ShardProgress(position=resume_after(self._last), as_of=_latest(*instants))

    @property
    def end(self) -> ShardProgress:
        """The same, with the end of the shard if that is in it."""
        return self.reached.ended() if self.has_ended else self.reached

    @property
    def begun(self) -> datetime | None:
        """When the first of this arrived, or what came before it; ``None`` if nothing tells."""
        return self.start.as_of or self._first_arrival

    @property
    def waiting_since(self) -> datetime | None:
        """When the first of this arrived; ``None`` if there is nothing, or nothing tells."""
        return (self._first_arrival or self.start.as_of) if self else None

    def add(self, fresh: RecordBatch, counts: Sequence[int]) -> None:
        """Add records that directly follow what was seen; each counts for so many deliveries."""
        if not len(fresh):
            return
        if self._last is None:
            self._first = fresh.first_sequence_number
            self._first_arrival = _instant_of(fresh.arrival_epoch_seconds[0])
        self._seen_records += len(fresh)
        self._last = fresh.last_sequence_number
        self._last_arrival = _latest(self._last_arrival, fresh.last_arrival)
        if not self._is_gap:
            self._numbers += fresh.sequence_numbers
            self._weights += map(Weight, map(len, fresh.payloads), counts)
            self._arrivals += fresh.arrival_epoch_seconds

    def leap_to(self, fresh: RecordBatch, since: datetime) -> None:
        """Add the first records since an instant: there is a gap before them."""
        first, arrival = self._first, self._first_arrival
        self._open_gap()
        self._seen_since = since
        self.add(fresh, ())
        self._first, self._first_arrival = first, arrival

    def leap_to_end(self) -> None:
        """Add everything up to the end of the shard, without knowing what that is."""
        self._open_gap()
        self._last = self._last_arrival = None
        self.has_ended = True

    def cut(self, page: RecordBatch, since: datetime) -> None:
        """Note the first record since an instant, if it is in the gap and after earlier cuts."""
        before = self._cuts[-1].progress if self._cuts else self.start
        after = before.processed if self._cuts else self._first or before.processed
        number = page.last_sequence_number
        if after is None or number is None or not after < number:
            return
        # Without a last record, everything up to the end of the shard is in the range.
        if self._last is None or number < self._last:
            as_of = _latest(before.as_of, page.last_arrival)
            progress = ShardProgress(position=resume_after(number), as_of=as_of)
            size = RangeSize(records=None, seen_since=since, seen_records=len(page))
            self._cuts.append(RangeEnd(progress=progress, size=size))

    def _open_gap(self) -> None:
        self._is_gap = True
        self._seen_since, self._seen_records = None, 0
        self._numbers, self._weights, self._arrivals = [], [], []

    def take(self, count: int | None = None) -> tuple[RangeEnd | None, Sighting]:
        """Make a range of this, or of its first ``count`` records.

        Returns:
            The end of the range, ``None`` if it would be empty, and what is left.
        """
        if count is not None and count < len(self._weights):
            return self._take_some(count) if count else (None, self)
        if not self:
            return None, self
        progress = self.end
        size = None if self._is_gap else _bytes_of(self._weights)
        end = RangeEnd(
            progress=progress,
            first=self._first,
            first_arrival=self._first_arrival,
            payload_bytes=size,
            size=RangeSize(
                records=None if self._is_gap else len(self._numbers),
                seen_since=self._seen_since,
                seen_records=self._seen_records,
            ),
            user_records=sum(weight.records for weight in self._weights),
            cuts=tuple(self._cuts),
        )
        return end, Sighting(progress)

    def _take_some(self, count: int) -> tuple[RangeEnd, Sighting]:
        progress = ShardProgress(
            position=resume_after(SequenceNumber(self._numbers[count - 1])),
            as_of=_latest(self.start.as_of, _instant_of(max(self._arrivals[:count]))),
        )
        whole, _ = self.take()
        assert whole is not None, "there are more records than are taken"
        end = evolve(
            whole,
            progress=progress,
            payload_bytes=_bytes_of(self._weights[:count]),
            size=RangeSize(records=count),
            user_records=sum(weight.records for weight in self._weights[:count]),
        )
        rest = Sighting(progress)
        rest._first, rest._last = SequenceNumber(self._numbers[count]), self._last
        rest._first_arrival = _instant_of(self._arrivals[count])
        rest._last_arrival, rest.has_ended = self._last_arrival, self.has_ended
        rest._numbers, rest._weights = self._numbers[count:], self._weights[count:]
        rest._arrivals = self._arrivals[count:]
        return end, rest

    def renew(self, seen: datetime) -> None:
        """Note that everything that arrived before ``seen`` is in ranges."""
        self.start = evolve(self.start, as_of=_latest(self.start.as_of, seen))


def _bytes_of(weights: Sequence[Weight]) -> int:
    return sum(weight.payload_bytes for weight in weights)


def resampled(
    before: Sample | None, fresh: RecordBatch, counts: Sequence[int], *, since: datetime | None
) -> Sample | None:
    """Return the estimate with records added, which are as many deliveries as ``counts`` says."""
    arrivals = fresh.arrival_epoch_seconds
    if not arrivals or (since is None and len(arrivals) < 2):
        return before
    begin = _instant_of(min(arrivals)) if since is None else since
    seconds = (_instant_of(max(arrivals)) - begin).total_seconds()
    weights = list(map(Weight, map(len, fresh.payloads), counts))
    return sampled(before, weights, seconds=seconds)


def _instant_of(epoch_seconds: float) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, UTC)


def _latest(*instants: datetime | None) -> datetime | None:
    return max((instant for instant in instants if instant is not None), default=None)
