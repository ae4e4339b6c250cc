"""Looks at one shard, for the record that could end a range that begins where the shard stands."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from attrs import define, evolve, field, frozen

from kinesis_publishers.abc import RecordBatchConsumer
from kinesis_publishers.assembly import Services
from kinesis_publishers.engine.alignment import Front, latest_known
from kinesis_publishers.engine.consumer_context import drop_processed
from kinesis_publishers.engine.delivery import ShardStatus
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.readers.ranges.rules import (
    INSTANT,
    NO_SAMPLE,
    LookPlanner,
    Step,
    cut_instants,
    expected_bytes,
    is_small_tail,
    whole_millisecond,
)
from kinesis_publishers.readers.ranges.seen_records import RangeEnd, SeenRecords

# A burst that a small look does not reach the end of is looked at in steps that grow so fast.
_GROWTH = 4
# From a place near the tip, pages of this many records lead to the tip itself.
_RECORDS_TO_TIP = 1000
# The calls of one look; what they do not find, the next look does.
_CALLS_PER_LOOK = 5
# The service tells its time in whole seconds.
_CLOCK_ERROR = timedelta(seconds=1)
# More than a shard takes in a tenth of a second, at one instant (AWS service limits).
_DENSE_RECORDS = 100


@define(eq=False)
class ShardProbe:
    """Looks for what arrived before an instant in one shard, and makes the ranges that have it.

    Args:
        shard: as it is listed; replaced when the listing says more.
        piece_records: the approximate number of user records per piece of a range, if several tasks
            may share it.

    Attributes:
        seen: what was seen and is in no range yet.
        plan: decides which call comes next, and knows the rate of the shard.
        tip_lasts: a shard that was at its tip so lately counts as being there.
        last_look: when the service was asked last, on the monotonic clock.
        millis_behind_latest: how far the last answer was behind the tip; ``None`` before one says.
            One that has skipped what was not seen does not count.
        is_anchored: whether the beginning of the rest has been looked at, so that it is known to be
            there.
    """

    shard: Shard
    seen: SeenRecords
    _services: Services
    _piece_records: int | None = None
    tip_lasts: timedelta = field(default=timedelta(), init=False)
    last_look: float = field(default=float("-inf"), init=False)
    millis_behind_latest: int | None = field(default=None, init=False)
    is_anchored: bool = field(default=False, init=False)
    plan: LookPlanner = field(factory=LookPlanner, init=False)
    # What reads on from the last record that was seen.
    _tail: PollingRecordPublisher | None = field(default=None, init=False)
    # Whether more arrived at one instant than looks show.
    _is_dense: bool = field(default=False, init=False)
    _tip_seen_at: datetime | None = field(default=None, init=False)
    # What arrived before this instant, by the reader's clock, has been seen.
    _seen_until: datetime | None = field(default=None, init=False)

    @property
    def progress(self) -> ShardProgress:
        """How far ranges were made."""
        return self.seen.start

    @property
    def status(self) -> ShardStatus:
        """How far the shard has been looked at."""
        return ShardStatus(
            shard=self.shard,
            progress=self.progress,
            millis_behind_latest=self.millis_behind_latest,
            read_until=latest_known(self._tip_seen_at, self._seen_until),
        )

    @property
    def front(self) -> Front:
        """How far all records were seen, and whether there are no others."""
        return Front(self.seen.latest_arrival, is_idle=self._is_at_tip or self.seen.has_ended)

    @property
    def begins_at(self) -> datetime | None:
        """The instant before which all that arrived is in ranges; ``None`` if unknown."""
        start = self.progress
        # Nothing is there before the next record.
        seen_until = None if self.seen else self._seen_until
        return latest_known(
            start.as_of, start.position.timestamp, self.seen.first_arrival, seen_until
        )

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing more a moment ago."""
        return self._is_at_tip and not self.seen

    @property
    def _is_at_tip(self) -> bool:
        seen_at = self._tip_seen_at
        is_fresh = seen_at is not None and self._services.clock.now() - seen_at <= self.tip_lasts
        return is_fresh and not self.shard.is_closed

    @property
    def waiting_records(self) -> float:
        """The approximate number; infinite at the end of a shard, because its children wait."""
        if self.seen.has_ended:
            return math.inf
        if self.seen.gap_until is None:
            return self.seen.user_records
        size = expected_bytes(self.plan.sample, self.seen.begun, self.seen.gap_until)
        return self.seen.user_records + size / (self.plan.sample or NO_SAMPLE).user_record_bytes

    def wait(self, interval: float) -> float:
        """Return how many seconds to wait: a look that may not ask yet would hold up the others."""
        left = self.last_look + interval - self._services.clock.monotonic()
        return max(left, 0.0 if self._tail is None else self._tail.seconds_left)

    def has_seen(self, until: datetime) -> bool:
        """Return whether everything that arrived before ``until`` is in ranges or waits for one."""
        if self.progress.is_ended or self.seen.has_ended:
            return True
        # A closed shard has an end, and children that come after it: its tip is not enough.
        latest = latest_known(self._tip_seen_at, self._seen_until)
        return latest is not None and latest >= until and not self.shard.is_closed

    def is_caught_up(self, until: datetime) -> bool:
        """Return whether everything that arrived before ``until`` is in ranges."""
        # Clocks differ a little: what was seen and arrived soon after it counts, too.
        return self.has_seen(until) and not self.seen.has_any_before(until + _CLOCK_ERROR)

    def _reaches(self, instant: datetime) -> bool:
        """Return whether arrivals before ``instant`` were seen, or lie in a gap."""
        return self.seen.reaches(instant) or self.has_seen(instant)

    def knows(self, instant: datetime) -> bool:
        """Return whether arrivals before ``instant`` are in ranges, were seen, or lie in a gap."""
        as_of = self.progress.as_of
        is_done = self.is_idle or (as_of is not None and as_of >= instant)
        return is_done or self._reaches(instant)

    def count_until(self, instant: datetime) -> int:
        """Return how many of the records that were seen come before those since ``instant``.

        If nothing does, all that arrived earlier is in ranges.
        """
        as_of = self.progress.as_of
        if as_of is not None and not self.seen.has_any_before(instant):
            # What was at its tip a moment ago was not asked since.
            self.seen.renew(instant if self._reaches(instant) else self._tip_seen_at or as_of)
        return self.seen.count_before(instant)

    def forget_after(self, instant: datetime) -> bool:
        """Forget what was seen if there is a gap that ends later; say whether there was."""
        gap_until = self.seen.gap_until
        is_late = gap_until is not None and gap_until > instant
        if is_late:
            self.begin_again()
        return is_late

    def begin_again(self, publisher: PollingRecordPublisher | None = None) -> None:
        """Forget what was seen; continue with ``publisher``, if there is no more before it."""
        self.seen, self._tail = SeenRecords(self.progress), publisher
        self.is_anchored = False
        self._tip_seen_at = self._seen_until = self.plan.nothing_since = None

    async def count(self, most: int) -> None:
        """Look at the records that follow what was seen, until ``most`` of them wait."""
        if not self.seen.has_ended and self.seen.user_records < most:
            self.plan.growth = 1
            await self._ask(self.plan.read_on(most - self.seen.user_records))

    async def look(self, target: datetime) -> None:
        """Look until everything that arrived before ``target`` has been seen, or lies in a gap.

        What cannot be found with some calls is left to the next look.
        """
        for _ in range(_CALLS_PER_LOOK):
            if self._reaches(target):
                break
            latest = self.seen.latest_arrival
            if not self.is_anchored or latest is None:
                step: Step | None = self.plan.read_on()
            else:
                step = self.plan.next(latest, target, self._services.clock.monotonic())
            if step is None or not await self._ask(step):
                break
        await self._look_for_cuts()

    async def anchor(self) -> None:
        """Look at the beginning of the rest: the reader of the range must find it, too."""
        await self._ask(self.plan.read_on())

    async def reach_tip(self, since: datetime) -> None:
        """Look until everything that is there at ``since`` has been seen, however much it is."""
        self._tip_seen_at = self._seen_until = None
        # What arrives at this very instant is there, too, and its time may be rounded up.
        target = whole_millisecond(since) + 2 * INSTANT
        while not (self._reaches(target) or self.has_seen(since)):
            await self.look(target)
            if not self._reaches(target):
                await self._ask(self.plan.read_on(_RECORDS_TO_TIP))

    async def _look_for_cuts(self) -> None:
        begun, sample, most = self.seen.begun, self.plan.sample, self._piece_records
        if not self.seen.needs_cuts or begun is None or sample is None or most is None:
            return
        size = expected_bytes(sample, begun, self.seen.gap_until)
        for instant in cut_instants(sample, begun, size, most):
            # One is left for the next look.
            if not self.plan.may_jump(self._services.clock.monotonic(), keep=1):
                return
            _, page = await self._call(Step(limit=1, since=instant))
            if page is not None:
                self.seen.cut(page.batch, instant)

    async def _ask(self, step: Step) -> bool:
        """Make one call, and learn from the answer; say whether there was one."""
        plan, since, latest = self.plan, step.since, self.seen.latest_arrival
        publisher, page = await self._call(step)
        if page is None:
            return False
        fresh = drop_processed(page.batch, self.seen.last)
        if since is not None and not len(fresh):
            # Empty answers are possible with records ahead.
            if page.is_last and not len(page.batch):
                plan.note_nothing(since)
            return True
        counts = await self._services.aggregates.counts(fresh)
        self.seen.add(fresh, counts, since=since)
        self.seen.has_ended = page.has_ended
        self._tail = publisher
        # After a record that the retention has removed, the service may answer nothing for ever.
        # And the end of a shard that is closed may come with an answer of its own.
        is_at_end = page.has_ended or (page.is_last and not self.shard.is_closed)
        self.is_anchored = is_at_end or len(page.batch) > 0
        is_cut = len(page.batch) >= step.limit
        plan.learn(fresh, counts, latest if since is None else since, is_cut=is_cut)
        plan.growth = plan.growth * _GROWTH if is_cut and since is None else 1
        is_tip = self._note_tip(page.batch, is_cut=is_cut)
        is_small = plan.is_quiet if since else is_small_tail(len(fresh), fresh.payload_bytes)
        plan.is_quiet = is_tip and is_small
        return True

    async def _call(self, step: Step) -> tuple[PollingRecordPublisher, ShardPage | None]:
        if step.since is not None:
            position = StartingPosition.at_timestamp(step.since)
            publisher = await self._services.polling.create(position, self.shard)
        else:
            if self._tail is None:
                self._tail = await self._services.polling.create(self.seen.resume, self.shard)
            publisher = self._tail
        self.last_look = self._services.clock.monotonic()
        return publisher, await read_page(publisher, step.limit)

    def _note_tip(self, page: RecordBatch, *, is_cut: bool) -> bool:
        """Take note of how far a page is behind the tip; say whether it is there."""
        self.millis_behind_latest = page.millis_behind_latest
        if page.millis_behind_latest:
            self._seen_until = page.read_until
        arrivals = page.arrival_epoch_seconds
        is_large = is_cut and len(page) >= _DENSE_RECORDS
        self._is_dense |= is_large and arrivals[0] == arrivals[-1]
        # A page that is cut off by its Limit may have the arrival time of the tip, and not be it.
        if page.millis_behind_latest != 0 or is_cut:
            return False
        self._tip_seen_at, self.plan.nothing_since = page.requested_at, None
        if not (self.seen or self.shard.is_closed):
            self.seen.renew(page.requested_at)
        return True

    def take(self, count: int | None = None) -> RangeEnd | None:
        """Make a range of what was seen, or of its first ``count`` records; ``None`` if empty."""
        begun = self.seen.begun
        end, rest = self.seen.take(count)
        self.seen = rest
        if end is None:
            return None
        if end.payload_bytes is None:
            end = end.guessed(self.plan.sample, begun, is_dense=self._is_dense)
        # Where a closed shard has ended, its children continue: its tip says nothing about them.
        if not (rest or self._tip_seen_at is None or self.shard.is_closed):
            rest.renew(self._tip_seen_at)
            end = evolve(end, progress=rest.start)
        self._is_dense = False
        return end


@frozen(kw_only=True)
class ShardPage:
    """The answer to one GetRecords, which may be empty with records still ahead.

    After one that ``has_ended`` nothing follows, because the shard is closed.
    """

    batch: RecordBatch
    has_ended: bool = False

    @property
    def is_last(self) -> bool:
        """Whether nothing followed when the page was asked for."""
        return self.has_ended or self.batch.millis_behind_latest == 0


async def read_page(publisher: PollingRecordPublisher, limit: int) -> ShardPage | None:
    """Let ``publisher`` make one call; without a page, the call has to be made again later."""
    # Before each call: adaptive reads change it.
    publisher.limit = limit
    consumer = _OnePage()
    has_ended = await publisher.run(consumer) is RunResult.COMPLETE
    return None if consumer.batch is None else ShardPage(batch=consumer.batch, has_ended=has_ended)


@define(eq=False)
class _OnePage(RecordBatchConsumer):
    batch: RecordBatch | None = None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Ask for nothing: a search holds one page per shard, and drops it at once."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.batch = batch.in_order()
        return self.batch.last_sequence_number
