"""Looks at one shard: which record could be the last one of a range that begins where it stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import define, evolve, field

from kinesis_publishers.aggregation.deaggregation import Deaggregator
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.alignment import Weight
from kinesis_publishers.engine.delivery import ShardStatus, drop_processed
from kinesis_publishers.model import RecordBatch, Shard, ShardProgress, StartingPosition
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.readers.range_ends.last_record import (
    CreatePollingPublisher,
    ShardPage,
    read_page,
)
from kinesis_publishers.readers.range_ends.rules import (
    NO_SAMPLE,
    Portion,
    Sample,
    cut_instants,
    expected_bytes,
    is_divisible,
    is_narrow,
    is_small_tail,
    is_within_reach,
    jump_target,
    latest_end,
    rest_limit,
    tail_limit,
)
from kinesis_publishers.readers.range_ends.seen_records import RangeEnd, Sighting, resampled

# The most that one GetRecords returns (AWS service limits).
_MOST_RECORDS = 10_000
# A burst that a small look does not reach the end of is looked at in steps that grow so fast.
_GROWTH = 4
# From a place near the tip so many records at a time lead to the tip itself.
_STEP_TO_TIP = 1000
_NEAR = timedelta(seconds=5)
# A shard allows five new iterators a second (AWS service limits), and its readers need some.
_JUMPS_AT_ONCE = 5.0
_JUMPS_PER_SECOND = 3.0
# More than a shard takes in a tenth of a second, at one instant (AWS service limits).
_DENSE_RECORDS = 100
# What comes at one instant is read with so many calls in one look, at most.
_PAGES_OF_AN_INSTANT = 4


@define(eq=False)
class ShardProbe:
    """Looks for the end of the next range of one shard.

    A look *jumps* to an instant and takes a record from there, so that a range of any size costs
    two small calls; or it *reads on* from where the last look ended, which costs one call and finds
    the tip of a shard that has little traffic.

    Args:
        shard: as it is listed; replaced when the listing says more.
        seen: what was seen, at first nothing but where the shard stands.
        piece_records: into pieces of about how many user records tasks may cut a range.

    Attributes:
        last_look: when the service was asked last, on the monotonic clock.
        millis_behind_latest: how far the last answer was behind the tip; ``None`` before one says.
            One that has skipped what was not seen does not count.
        is_behind: whether the last look stopped short of the tip on purpose.
    """

    shard: Shard
    _seen: Sighting
    _create_publisher: CreatePollingPublisher
    _clock: Clock
    _aggregates: Deaggregator
    _piece_records: int | None = None
    last_look: float = field(default=float("-inf"), init=False)
    millis_behind_latest: int | None = field(default=None, init=False)
    is_behind: bool = field(default=False, init=False)
    # What reads on from the last record that was seen.
    _tail: PollingRecordPublisher | None = field(default=None, init=False)
    # Whether the position has been read from, so that it is known to be there.
    _is_anchored: bool = field(default=False, init=False)
    # Whether so little comes that reading on finds the tip.
    _is_quiet: bool = field(default=False, init=False)
    # Whether the last answer had all that there was.
    _is_at_tip: bool = field(default=False, init=False)
    # Whether a few records were seen to arrive at one instant: they do not tell how fast it fills.
    _is_written_in_bursts: bool = field(default=False, init=False)
    # Whether more was seen to come at one instant than looks tell.
    _is_dense: bool = field(default=False, init=False)
    _step: int = field(default=1, init=False)
    _jumps_left: float = field(default=0.0, init=False)
    _jumps_counted_at: float = field(default=float("-inf"), init=False)
    _tip_seen_at: datetime | None = field(default=None, init=False)
    # What arrived before this instant, by the reader's clock, has been seen.
    _seen_until: datetime | None = field(default=None, init=False)
    _nothing_since: datetime | None = field(default=None, init=False)
    _sample: Sample | None = field(default=None, init=False)

    @property
    def progress(self) -> ShardProgress:
        """How far ranges were made."""
        return self._seen.start

    @property
    def has_news(self) -> bool:
        """Whether a range can be made."""
        return bool(self._seen)

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

    def wait(self, interval: float) -> float:
        """Return how long not to look: a look that may not ask yet would hold up the others."""
        left = self.last_look + interval - self._clock.monotonic()
        return max(left, 0.0 if self._tail is None else self._tail.seconds_left)

    @property
    def waiting_since(self) -> datetime | None:
        """When the first record arrived that is in no range yet, as far as is known."""
        return self._seen.waiting_since

    @property
    def waiting(self) -> Sequence[Weight]:
        """What each record counts for that was seen and is in no range yet."""
        return self._seen.weights

    @property
    def waiting_records(self) -> float:
        """About how many they are; endless at the end of a shard, because its children wait."""
        if self._seen.has_ended or self.waiting:
            return math.inf if self._seen.has_ended else sum(one.records for one in self.waiting)
        now, reached = self._clock.now(), self._seen.reached
        size = expected_bytes(self._sample, self._seen.begun, reached, now) if self._seen else 0
        return size / (self._sample or NO_SAMPLE).user_record_bytes

    @property
    def record_bytes(self) -> float:
        """How large a record is, by those that were seen."""
        return (self._sample or NO_SAMPLE).record_bytes

    def is_caught_up(self, until: datetime) -> bool:
        """Say whether everything that arrived before ``until`` is in ranges."""
        return self.has_seen(until) and not self.has_news

    def has_seen(self, until: datetime) -> bool:
        """Say whether everything that arrived before ``until`` is in ranges or waits for one."""
        if self.progress.is_ended or self._has_seen_tip(until):
            return True
        # A reader slower than the producers never reaches the tip.
        is_past = self._seen_until is not None and self._seen_until >= until
        return is_past and not self.shard.is_closed

    def _has_seen_tip(self, since: datetime) -> bool:
        # A closed shard has an end, and children that come after it: the tip is not enough.
        if self._seen.has_ended or self.shard.is_closed:
            return self._seen.has_ended
        return self._tip_seen_at is not None and self._tip_seen_at >= since

    async def count(self, most: int) -> None:
        """Look at the records that follow what was seen, until ``most`` of them wait."""
        waiting = sum(weight.records for weight in self._seen.weights)
        if not self._seen.has_ended and waiting < most:
            self._step = 1
            await self._read_on(most - waiting)

    async def look(self, share: Portion) -> None:
        """Look for a record near the tip, or as far on as one range may reach.

        Args:
            share: how much of a shard that lags that is.

        Raises:
            PositionTrimmedError: the place where the shard stands is no longer available.
            ServiceError: a failure that retrying does not cure.
        """
        await self._look(share)

    async def look_for_tip(self, since: datetime, share: Portion) -> None:
        """Look as :meth:`look` does; where that comes close to the tip, read up to it."""
        await self._look(share)
        if not self.is_behind and not self._has_seen_tip(since):
            await self._read_on(_STEP_TO_TIP)

    async def reach_tip(self, since: datetime) -> None:
        """Look until everything that arrived before ``since`` has been seen, however much it is."""
        self._tip_seen_at = self._seen_until = None
        while not self.has_seen(since):
            await self._look(None)
            if not self.has_seen(since):
                await self._read_on(_STEP_TO_TIP)

    def begin_at_horizon(self, publisher: PollingRecordPublisher) -> None:
        """Continue with what the stream still holds, and ``publisher``, which begins there."""
        self._seen = Sighting(self.progress)
        self._tail, self._is_anchored = publisher, False
        self._tip_seen_at = self._seen_until = None

    def give_up(self) -> None:
        """Take the shard for ended: the service no longer knows it."""
        self._seen = Sighting(self.progress.ended())

    async def _look(self, share: Portion | None) -> None:
        await self._look_for_end(share)
        begun, sample, most = self._seen.begun, self._sample, self._piece_records
        if not self._seen.needs_cuts or begun is None or sample is None or most is None:
            return
        size = expected_bytes(sample, begun, self._seen.end, self._clock.now())
        for instant in cut_instants(sample, begun, size, most):
            # One is left for the next look.
            if not self._may_jump(keep=1):
                return
            position = StartingPosition.at_timestamp(instant)
            publisher = await self._create_publisher(position, self.shard)
            publisher.limit = 1
            if page := await self._run(publisher):
                self._seen.cut(page.batch, instant)

    async def _look_for_end(self, share: Portion | None) -> None:
        self.is_behind = False
        if self._seen.has_ended:
            return
        now, reached = self._clock.now(), self._seen.reached
        if self.shard.is_closed and is_within_reach(reached, now, self._sample, share):
            self._seen.leap_to_end()
            return
        latest = latest_end(reached, now, self._sample, share)
        # Read on once before jumping: the reader of the range must find its beginning, too.
        is_known = self._is_anchored and not self._is_quiet
        if not is_known or not await self._jump_on(latest):
            await self._read_tail()
            # Only now is it known where a new query begins, and how fast its shard is written to.
            latest = latest_end(self._seen.reached, now, self._sample, share)
            await self._close_in(latest)
        as_of = self._seen.reached.as_of
        self.is_behind = latest < now - _NEAR and as_of is not None and as_of >= latest

    async def _jump_on(self, latest: datetime) -> bool:
        """Jump as far as that leads; say whether it led on, or what is left has been read."""
        reached, nothing_since = self._seen.reached, self._nothing_since
        if is_divisible(reached, nothing_since):
            rest = rest_limit(self._sample, reached, nothing_since)
            # The rate tells nothing where many records come at once, or more came than expected.
            if rest is None or self._is_written_in_bursts or self._step > 1:
                await self._close_in(latest)
            else:
                await self._read_on(rest)
            return self._has_moved(reached) or self._nothing_since != nothing_since
        is_instant = nothing_since is not None and is_narrow(reached, nothing_since)
        # What follows an instant ends it; if nothing does, it is over, and is read.
        target = nothing_since if is_instant else jump_target(reached, latest)
        landed = await self._jump(target) if target is not None and self._may_jump() else None
        if is_instant and landed is not None:
            await (self._close_in(latest) if landed else self._read_instant())
        return self._has_moved(reached)

    def _has_moved(self, before: ShardProgress) -> bool:
        return self._seen.has_ended or self._seen.reached != before

    async def _read_tail(self) -> None:
        await self._read_on(tail_limit(self._sample))

    async def _read_instant(self) -> None:
        """Read what is left of one instant, which times do not divide.

        That is fetched twice: so it waits until the next instant would have shown itself.
        """
        for _ in range(_PAGES_OF_AN_INSTANT):
            await self._read_on(_MOST_RECORDS)
            if self._is_at_tip or not is_narrow(self._seen.reached, self._nothing_since):
                return

    async def _close_in(self, latest: datetime) -> None:
        """Jump into what is left, again and again."""
        misses = 0
        while self._is_anchored and not (self._is_at_tip or self._seen.has_ended):
            reached = self._seen.reached
            target = jump_target(reached, latest, self._nothing_since, misses=misses)
            # One is left for the next look.
            if target is None or not self._may_jump(keep=1):
                return
            landed = await self._jump(target)
            if landed is None:
                return
            misses = 0 if landed else misses + 1

    def _may_jump(self, *, keep: int = 0) -> bool:
        now = self._clock.monotonic()
        self._jumps_left += _JUMPS_PER_SECOND * (now - self._jumps_counted_at)
        self._jumps_left, self._jumps_counted_at = min(_JUMPS_AT_ONCE, self._jumps_left), now
        if self._jumps_left < 1 + keep:
            return False
        self._jumps_left -= 1.0
        return True

    async def _read_on(self, limit: int) -> None:
        reached = self._seen.reached
        if self._tail is None:
            self._tail = await self._create_publisher(reached.position, self.shard)
        self._tail.limit = limit = min(_MOST_RECORDS, limit * self._step)
        page = await self._run(self._tail)
        if page is None:
            return
        fresh = drop_processed(page.batch, reached.processed)
        self._seen.has_ended = page.has_ended
        counts = await self._aggregates.counts(fresh)
        self._seen.add(fresh, counts)
        self._sample = resampled(self._sample, fresh, counts, since=reached.as_of)
        self._step = self._step * _GROWTH if len(page.batch) == limit else 1
        # After a record that the retention has removed, the service may answer nothing for ever.
        self._is_anchored = len(page.batch) > 0 or page.batch.millis_behind_latest == 0
        self._is_quiet = is_small_tail(len(fresh), fresh.payload_bytes)
        self._note_tip(page.batch, limit)

    async def _jump(self, target: datetime) -> bool | None:
        """Take a record that arrived at or after ``target``.

        Returns:
            Whether that leads on; ``None`` if the answer says neither.
        """
        publisher = await self._create_publisher(StartingPosition.at_timestamp(target), self.shard)
        publisher.limit = limit = tail_limit(self._sample, is_jump=not self._is_written_in_bursts)
        page = await self._run(publisher)
        if page is None:
            return None
        fresh = drop_processed(page.batch, self._seen.reached.processed)
        if len(fresh):
            self._seen.leap_to(fresh, target)
            self._seen.has_ended = page.has_ended
            self._tail, self._step = publisher, 1
            arrivals = page.batch.arrival_epoch_seconds
            self._is_written_in_bursts |= len(page.batch) == limit and arrivals[0] == arrivals[-1]
            counts = await self._aggregates.counts(fresh)
            self._sample = resampled(self._sample, fresh, counts, since=target)
            self._note_tip(page.batch, limit)
            return True
        return self._note_nothing_since(target, page)

    def _note_nothing_since(self, target: datetime, page: ShardPage) -> bool | None:
        # Empty answers are possible with records ahead.
        if len(page.batch) or not page.is_last:
            return None
        if page.has_ended or self.shard.is_closed:
            # There is no record after the instant, and never will be: what is left before it is
            # read to the end of the shard.
            self._seen.leap_to_end()
            return True
        # What an earlier look has shown of the time before is kept.
        known, as_of = self._nothing_since, self._seen.reached.as_of
        if known is None or as_of is None or not as_of < known < target:
            self._nothing_since = target
        return False

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
        self._is_at_tip = page.millis_behind_latest == 0 and len(page) < limit
        if not self._is_at_tip:
            self._is_quiet = False
            return
        self._tip_seen_at, self._nothing_since = page.requested_at, None
        if not self.has_news:
            self._seen.renew(page.requested_at)

    def take(self, count: int | None = None) -> RangeEnd | None:
        """Make a range of what was seen, or of its first ``count`` records; ``None`` if empty."""
        begun = self._seen.begun
        end, rest = self._seen.take(count)
        self._seen = rest
        if end is None:
            return None
        if end.payload_bytes is None:
            end = end.guessed(self._sample, begun, self._clock.now(), is_dense=self._is_dense)
        if not rest and self._tip_seen_at is not None:
            rest.renew(self._tip_seen_at)
            end = evolve(end, progress=rest.start)
        self._is_dense = False
        return end
