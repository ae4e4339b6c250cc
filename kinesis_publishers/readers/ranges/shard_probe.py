"""Looks at one shard: which record could be the last one of a range that begins where it stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import define, evolve, field

from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.alignment import Front
from kinesis_publishers.engine.consumer_context import drop_processed
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.model import RecordBatch, Shard, ShardProgress, StartingPosition
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.readers.ranges.record_search import (
    CreatePollingPublisher,
    ShardPage,
    read_page,
)
from kinesis_publishers.readers.ranges.rules import (
    INSTANT,
    NO_SAMPLE,
    JumpBudget,
    Place,
    Sample,
    cut_instants,
    expected_bytes,
    expected_records,
    is_little,
    is_small_tail,
    rest_limit,
    tail_limit,
    whole_millisecond,
)
from kinesis_publishers.readers.ranges.seen_records import RangeEnd, SeenRecords, resampled

# The most that one GetRecords returns (AWS service limits).
_MOST_RECORDS = 10_000
# A burst that a small look does not reach the end of is looked at in steps that grow so fast.
_GROWTH = 4
# From a place near the tip, pages of this many records lead to the tip itself.
_STEP_TO_TIP = 1000
# So often one look asks; what it does not find, the next one does.
_CALLS_PER_LOOK = 5
# How far before a silence its last record is sought first.
_FIRST_STEP, _LONGEST_STEP = timedelta(seconds=1), timedelta(days=366)
# The service tells its time in whole seconds.
_CLOCK_ERROR = timedelta(seconds=1)
# More than a shard takes in a tenth of a second, at one instant (AWS service limits).
_DENSE_RECORDS = 100


@define(eq=False)
class ShardProbe:
    """Looks for what arrived before an instant in one shard, and makes the ranges that have it.

    A look *jumps* to an instant and takes a record from there, so that a range of any size costs
    two small calls: it ends before that record. Or it *reads on* from where the last look ended,
    which costs one call and finds the tip of a shard that has little traffic. Where nothing follows
    the instant, the last record before it is sought, nearer and nearer.

    Args:
        shard: as it is listed; replaced when the listing says more.
        piece_records: into pieces of about how many user records tasks may cut a range.

    Attributes:
        seen: what was seen and is in no range yet.
        sample: how fast the shard is written to, by what was seen.
        last_look: when the service was asked last, on the monotonic clock.
        millis_behind_latest: how far the last answer was behind the tip; ``None`` before one says.
            One that has skipped what was not seen does not count.
    """

    shard: Shard
    seen: SeenRecords
    _create_publisher: CreatePollingPublisher
    _clock: Clock
    _aggregates: Deaggregator
    _piece_records: int | None = None
    #: What was at its tip so lately is taken for being there: it is asked again in time.
    tip_lasts: timedelta = field(default=timedelta(), init=False)
    last_look: float = field(default=float("-inf"), init=False)
    millis_behind_latest: int | None = field(default=None, init=False)
    # What reads on from the last record that was seen.
    _tail: PollingRecordPublisher | None = field(default=None, init=False)
    # Whether the position has been read from, so that it is known to be there.
    _is_anchored: bool = field(default=False, init=False)
    # Whether so little comes that reading on finds the tip.
    _is_quiet: bool = field(default=False, init=False)
    # Whether more was seen to come at one instant than looks tell.
    _is_dense: bool = field(default=False, init=False)
    # How many records a jump takes: more where a few of them arrived at one instant, which does not
    # tell how fast the shard fills.
    _jump_records: int | None = field(default=None, init=False)
    _step: int = field(default=1, init=False)
    _jumps: JumpBudget = field(factory=JumpBudget, init=False)
    _tip_seen_at: datetime | None = field(default=None, init=False)
    # What arrived before this instant, by the reader's clock, has been seen.
    _seen_until: datetime | None = field(default=None, init=False)
    # When the shard had no more records, and how far before that its last record is sought.
    _nothing_since: datetime | None = field(default=None, init=False)
    _back: timedelta = field(default=_FIRST_STEP, init=False)
    _is_tail_untried: bool = field(default=False, init=False)
    sample: Sample | None = field(default=None, init=False)

    @property
    def progress(self) -> ShardProgress:
        """How far ranges were made."""
        return self.seen.start

    @property
    def is_anchored(self) -> bool:
        """Whether the beginning of the rest has been looked at."""
        return self._is_anchored or self.seen.has_ended

    @property
    def status(self) -> ShardStatus:
        """How far the shard has been looked at."""
        instants = [one for one in (self._tip_seen_at, self._seen_until) if one is not None]
        return ShardStatus(
            shard=self.shard,
            progress=self.progress,
            millis_behind_latest=self.millis_behind_latest,
            read_until=max(instants, default=None),
        )

    @property
    def front(self) -> Front:
        """How far everything was seen, and whether that is all that there is."""
        return Front(self.seen.latest_arrival, is_idle=self._is_at_tip or self.seen.has_ended)

    @property
    def place(self) -> Place | None:
        """Where the shard stands; ``None`` if nothing tells."""
        start = self.progress
        instants = [start.as_of, start.position.timestamp, self.seen.first_arrival]
        if not self.seen:
            # Nothing is there before the next record.
            instants.append(self._seen_until)
        known = [one for one in instants if one is not None]
        return Place(max(known), self.sample) if known else None

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing more a moment ago."""
        return self._is_at_tip and not self.seen

    @property
    def _is_at_tip(self) -> bool:
        seen_at = self._tip_seen_at
        is_fresh = seen_at is not None and self._clock.now() - seen_at <= self.tip_lasts
        return is_fresh and not self.shard.is_closed

    def count_until(self, instant: datetime) -> int:
        """Return how many of the records that were seen come before those since ``instant``.

        If nothing does, all that arrived earlier is in ranges.
        """
        if self.progress.as_of is not None and not self.seen.has_any_before(instant):
            # What was at its tip a moment ago was not asked since.
            is_seen = self.seen.reaches(instant) or self.has_seen(instant)
            self.seen.renew(instant if is_seen else self._tip_seen_at or self.progress.as_of)
        return self.seen.count_before(instant)

    def forget_after(self, instant: datetime) -> bool:
        """Forget what was seen if there is a gap that ends later; say whether there was."""
        gap_until = self.seen.gap_until
        is_late = gap_until is not None and gap_until > instant
        if is_late:
            self._begin(SeenRecords(self.progress), None)
        return is_late

    def wait(self, interval: float) -> float:
        """Return how long not to look: a look that may not ask yet would hold up the others."""
        left = self.last_look + interval - self._clock.monotonic()
        return max(left, 0.0 if self._tail is None else self._tail.seconds_left)

    @property
    def waiting_records(self) -> float:
        """About how many they are; endless at the end of a shard, because its children wait."""
        if self.seen.has_ended:
            return math.inf
        seen = sum(one.records for one in self.seen.lane.weights)
        if self.seen.gap_until is None:
            return seen
        size = expected_bytes(self.sample, self.seen.begun, self.seen.gap_until)
        return seen + size / (self.sample or NO_SAMPLE).user_record_bytes

    def is_caught_up(self, until: datetime) -> bool:
        """Return whether everything that arrived before ``until`` is in ranges."""
        # Clocks differ a little: what was seen and arrived soon after it counts, too.
        return self.has_seen(until) and not self.seen.has_any_before(until + _CLOCK_ERROR)

    def has_seen(self, until: datetime) -> bool:
        """Return whether everything that arrived before ``until`` is in ranges or waits for one."""
        return self.progress.is_ended or self.seen.has_ended or self._has_seen_tip(until)

    def knows(self, instant: datetime) -> bool:
        """Return whether arrivals before ``instant`` are in ranges, were seen, or lie in a gap."""
        as_of = self.progress.as_of
        is_done = self.is_idle or (as_of is not None and as_of >= instant)
        return is_done or self.seen.reaches(instant) or self.has_seen(instant)

    async def count(self, most: int) -> None:
        """Look at the records that follow what was seen, until ``most`` of them wait."""
        waiting = sum(weight.records for weight in self.seen.lane.weights)
        if not self.seen.has_ended and waiting < most:
            self._step = 1
            await self._read_on(most - waiting)

    async def look(self, target: datetime) -> None:
        """Look until everything that arrived before ``target`` has been seen, or lies in a gap.

        What cannot be found with some calls is left to the next look.

        Raises:
            PositionTrimmedError: the place where the shard stands is no longer available.
            ServiceError: a failure that retrying does not cure.
        """
        for _ in range(_CALLS_PER_LOOK):
            if self._finds(target) or not await self._look_once(target):
                break
        await self._look_for_cuts()

    async def anchor(self) -> None:
        """Look at the beginning of the rest: the reader of the range must find it, too."""
        await self._read_on(tail_limit(self.sample))

    async def reach_tip(self, since: datetime) -> None:
        """Look until everything that is there at ``since`` has been seen, however much it is."""
        self._tip_seen_at = self._seen_until = None
        # What arrives at this very instant is there, too, and its time may be rounded up.
        target = whole_millisecond(since) + 2 * INSTANT
        while not (self._finds(target) or self._has_seen_tip(since)):
            await self.look(target)
            if not self._finds(target):
                await self._read_on(_STEP_TO_TIP)

    def _finds(self, target: datetime) -> bool:
        return self.seen.reaches(target) or self.has_seen(target)

    def _has_seen_tip(self, since: datetime) -> bool:
        # A closed shard has an end, and children that come after it: its tip is not enough.
        instants = (self._tip_seen_at, self._seen_until)
        return not self.shard.is_closed and any(one and one >= since for one in instants)

    def begin_at_horizon(self, publisher: PollingRecordPublisher) -> None:
        """Continue with what the stream still holds, and ``publisher``, which begins there."""
        self._begin(SeenRecords(self.progress), publisher)

    def _begin(self, seen: SeenRecords, publisher: PollingRecordPublisher | None) -> None:
        self.seen, self._tail = seen, publisher
        self._is_anchored = False
        self._tip_seen_at = self._seen_until = self._nothing_since = None

    def give_up(self) -> None:
        """Take the shard for ended: the service no longer knows it."""
        self.seen = SeenRecords(self.progress.ended())

    async def _look_once(self, target: datetime) -> bool:
        """Ask once; say whether there was an answer."""
        latest, sample = self.seen.latest_arrival, self.sample
        if not self._is_anchored or latest is None:
            return await self._read_on(tail_limit(sample))
        until, limit = self._nothing_since or target, tail_limit(sample)
        seconds = (until - latest).total_seconds()
        if self._nothing_since is not None:
            if self._is_tail_untried:
                self._is_tail_untried = False
                return await self._read_on(limit)
            if until - latest <= 2 * INSTANT:
                # Times do not divide an instant.
                return await self._read_on(rest_limit(sample))
            # Where a page was not enough, or records come in bursts, the rate tells nothing.
            tells = self._step == 1 and self._jump_records is None
            if tells and is_little(sample, seconds):
                return await self._read_on(expected_records(sample, seconds))
            target = max(latest + INSTANT, until - min(self._back, (until - latest) / 2))
        elif self._is_quiet or (self._step == 1 and is_little(sample, seconds, records=limit)):
            return await self._read_on(limit)
        return self._jumps.take(self._clock.monotonic()) and await self._jump(target)

    async def _look_for_cuts(self) -> None:
        begun, sample, most = self.seen.begun, self.sample, self._piece_records
        if not self.seen.needs_cuts or begun is None or sample is None or most is None:
            return
        size = expected_bytes(sample, begun, self.seen.gap_until)
        for instant in cut_instants(sample, begun, size, most):
            # One is left for the next look.
            if not self._jumps.take(self._clock.monotonic(), keep=1):
                return
            position = StartingPosition.at_timestamp(instant)
            publisher = await self._create_publisher(position, self.shard)
            publisher.limit = 1
            if page := await self._run(publisher):
                self.seen.cut(page.batch, instant)

    async def _read_on(self, limit: int) -> bool:
        last, since = self.seen.last, self.seen.latest_arrival
        if self._tail is None:
            self._tail = await self._create_publisher(self.seen.resume, self.shard)
        self._tail.limit = limit = min(_MOST_RECORDS, limit * self._step)
        page = await self._run(self._tail)
        if page is None:
            return False
        fresh = drop_processed(page.batch, last)
        self.seen.has_ended = page.has_ended
        counts = await self._aggregates.counts(fresh)
        self.seen.add(fresh, counts)
        self._resample(fresh, counts, since, is_cut=len(page.batch) == limit)
        self._step = self._step * _GROWTH if len(page.batch) == limit else 1
        # After a record that the retention has removed, the service may answer nothing for ever.
        # And the end of a shard that is closed may come with an answer of its own.
        self._is_anchored = len(page.batch) > 0 or (page.is_last and not self.shard.is_closed)
        self._is_quiet = is_small_tail(len(fresh), fresh.payload_bytes)
        self._note_tip(page.batch, limit)
        return True

    async def _jump(self, target: datetime) -> bool:
        """Take some records that arrived at or after ``target``."""
        publisher = await self._create_publisher(StartingPosition.at_timestamp(target), self.shard)
        publisher.limit = limit = self._jump_records or tail_limit(self.sample, is_jump=True)
        page = await self._run(publisher)
        if page is None:
            return False
        fresh = drop_processed(page.batch, self.seen.last)
        if len(fresh):
            counts = await self._aggregates.counts(fresh)
            self.seen.leap_to(fresh, counts, target)
            self.seen.has_ended = page.has_ended
            self._tail, self._step = publisher, 1
            self._resample(fresh, counts, target, is_cut=len(page.batch) == limit)
            self._note_tip(page.batch, limit)
        else:
            self._note_nothing_since(target, page)
        return True

    def _resample(
        self, fresh: RecordBatch, counts: Sequence[int], since: datetime | None, *, is_cut: bool
    ) -> None:
        """Measure the write rate of the shard, unless a burst continues after these records."""
        arrivals, most = fresh.arrival_epoch_seconds, rest_limit(self.sample)
        if is_cut and len(fresh) < most and arrivals and arrivals[0] == arrivals[-1]:
            # The next jump takes more, so that it reaches the next burst.
            self._jump_records = min(most, len(fresh) * 10)
        else:
            self.sample = resampled(self.sample, fresh, counts, since=since)

    def _note_nothing_since(self, target: datetime, page: ShardPage) -> None:
        # Empty answers are possible with records ahead.
        if len(page.batch) or not page.is_last:
            return
        if self._nothing_since is None:
            # Mostly nothing has come at all, which one call shows.
            self._back, self._is_tail_untried = _FIRST_STEP, True
        else:
            self._back = min(self._back * _GROWTH, _LONGEST_STEP)
        self._nothing_since = target

    async def _run(self, publisher: PollingRecordPublisher) -> ShardPage | None:
        self.last_look = self._clock.monotonic()
        return await read_page(publisher)

    def _note_tip(self, page: RecordBatch, limit: int) -> None:
        self.millis_behind_latest = page.millis_behind_latest
        if page.millis_behind_latest:
            self._seen_until = page.read_until
        arrivals = page.arrival_epoch_seconds
        self._is_dense |= len(page) >= limit >= _DENSE_RECORDS and arrivals[0] == arrivals[-1]
        # A page that is cut off by its Limit may have the arrival time of the tip, and not be it.
        if page.millis_behind_latest != 0 or len(page) == limit:
            self._is_quiet = False
            return
        self._tip_seen_at, self._nothing_since = page.requested_at, None
        if not (self.seen or self.shard.is_closed):
            self.seen.renew(page.requested_at)

    def take(self, count: int | None = None) -> RangeEnd | None:
        """Make a range of what was seen, or of its first ``count`` records; ``None`` if empty."""
        begun = self.seen.begun
        end, rest = self.seen.take(count)
        self.seen = rest
        if end is None:
            return None
        if end.payload_bytes is None:
            end = end.guessed(self.sample, begun, is_dense=self._is_dense)
        # Where a closed shard has ended, its children continue: its tip says nothing about them.
        if not (rest or self._tip_seen_at is None or self.shard.is_closed):
            rest.renew(self._tip_seen_at)
            end = evolve(end, progress=rest.start)
        self._is_dense = False
        return end
