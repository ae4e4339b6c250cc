"""Looks at one shard: which record could be the last one of a range that begins where it stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from attrs import define, evolve, field, frozen

from kinesis_publishers.abc.record_publisher import RecordBatchConsumer
from kinesis_publishers.model import (
    RecordBatch,
    RunResult,
    SequenceNumber,
    Shard,
    ShardProgress,
    StartingPosition,
    resume_after,
)
from kinesis_publishers.publishers.polling import PollingRecordPublisher
from kinesis_publishers.range_finding.rules import (
    Sample,
    is_small_tail,
    is_within_reach,
    jump_target,
    sampled,
    tail_limit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_publishers.clock import Clock

__all__ = ["CreatePollingPublisher", "RangeEnd", "ShardProbe"]

# The most that one GetRecords returns (AWS service limits).
_MOST_RECORDS = 10_000
# From a place near the tip so many records at a time lead to the tip itself.
_STEP_TO_TIP = 1000
_NEAR = timedelta(seconds=5)
# How many looks at a shard may follow each other when its tip is to be reached at once.
_LOOKS_TO_TIP = 60

CreatePollingPublisher: TypeAlias = Callable[
    [StartingPosition, Shard], Awaitable[PollingRecordPublisher]
]


@frozen(kw_only=True)
class RangeEnd:
    """Where a range ends that begins where the shard stood.

    Attributes:
        progress: how far the shard is read with the range included.
        first: the first record of the range, if it was seen.
        payload_bytes: how large the range is: exactly if all of it was seen, else an estimate.
    """

    progress: ShardProgress
    first: SequenceNumber | None = None
    payload_bytes: int = 0


class _Collector(RecordBatchConsumer):
    """Keeps the one page that a run of a polling publisher delivers."""

    def __init__(self) -> None:
        self.batch: RecordBatch | None = None

    async def wait_for_space(self, records: int, payload_bytes: int) -> None:
        """Return at once: a page of a look is small, and is not kept."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        self.batch = batch
        return batch.last_sequence_number


@define(eq=False)
class ShardProbe:
    """Knows what has been seen of a shard beyond the place up to which ranges were made of it.

    A look *jumps* to an instant and takes a record from there, so that a range of any size costs
    two small calls; or it reads on from where the last look ended, which costs one call and finds
    the tip of a shard that has little traffic.

    Args:
        shard: as it is listed; replaced when the listing says more.
        progress: how far ranges were made; :meth:`take` moves it.
        create_publisher: makes what reads a page.
        clock: the only source of time.
    """

    shard: Shard
    progress: ShardProgress
    _create_publisher: CreatePollingPublisher
    _clock: Clock
    last_look: float = field(default=float("-inf"), init=False)
    millis_behind_latest: int | None = field(default=None, init=False)
    tip_seen_at: datetime | None = field(default=None, init=False)
    _tail: PollingRecordPublisher | None = field(default=None, init=False)
    # What directly follows the position; nothing once a jump has left a gap.
    _sizes: list[int] = field(factory=list, init=False)
    _numbers: list[str] = field(factory=list, init=False)
    _arrivals: list[float] = field(factory=list, init=False)
    _first: SequenceNumber | None = field(default=None, init=False)
    _last: SequenceNumber | None = field(default=None, init=False)
    _last_arrival: datetime | None = field(default=None, init=False)
    _is_gap: bool = field(default=False, init=False)
    _has_ended: bool = field(default=False, init=False)
    _is_quiet: bool = field(default=False, init=False)
    # Whether the position has been read from, so that it is known to be there.
    _is_anchored: bool = field(default=False, init=False)
    # Whether the last look stopped short of the tip on purpose.
    _is_behind: bool = field(default=False, init=False)
    # A burst that a small look does not reach the end of is looked at in larger steps.
    _growth: int = field(default=1, init=False)
    _nothing_since: datetime | None = field(default=None, init=False)
    _sample: Sample | None = field(default=None, init=False)

    @property
    def has_news(self) -> bool:
        """Whether a range can be made."""
        return self._last is not None or self._has_ended

    @property
    def waiting_sizes(self) -> Sequence[int]:
        """The payload bytes of each record that was seen and is in no range yet."""
        return self._sizes

    @property
    def record_bytes(self) -> float:
        """How large a record is, by those that were seen."""
        return 1.0 if self._sample is None else self._sample.record_bytes

    def is_caught_up(self, until: datetime) -> bool:
        """Say whether everything that arrived before ``until`` is in ranges."""
        return self.progress.is_ended or (not self.has_news and self._has_seen_tip(until))

    def _has_seen_tip(self, since: datetime) -> bool:
        seen = self.tip_seen_at
        return self._has_ended or (seen is not None and seen >= since)

    async def count(self, most: int) -> None:
        """Look at the records that follow what was seen, until ``most`` of them wait."""
        if not self._has_ended and len(self._sizes) < most:
            await self._read_on(most - len(self._sizes))

    async def look(self) -> None:
        """Look for a record near the tip, or as far on as one range may reach.

        Raises:
            PositionTrimmedError: the place where the shard stands is not available any more.
            ServiceError: a failure that retrying does not mend.
        """
        await self._look(is_bounded=True)

    async def look_for_tip(self, since: datetime) -> None:
        """Look as :meth:`look` does; where that comes close to the tip, go on to the tip itself."""
        await self._look(is_bounded=True)
        if not self._is_behind and not self._has_seen_tip(since):
            await self._read_on(_STEP_TO_TIP)

    async def reach_tip(self, since: datetime) -> None:
        """Look until the tip has been seen, however far it is."""
        for _ in range(_LOOKS_TO_TIP):
            await self._look(is_bounded=False)
            if not self._has_seen_tip(since):
                await self._read_on(_STEP_TO_TIP)
            if self._has_seen_tip(since):
                return

    def begin_at_horizon(self, publisher: PollingRecordPublisher) -> None:
        """Go on with what the stream still holds: the position itself is not there any more.

        Args:
            publisher: one that begins at TRIM_HORIZON.
        """
        self._forget_seen()
        self._tail, self._is_anchored = publisher, False

    def give_up(self) -> None:
        """Take the shard for ended: the service does not know it any more."""
        self._forget_seen()
        self.progress = self.progress.ended()

    async def _look(self, *, is_bounded: bool) -> None:
        self._is_behind = False
        if self._has_ended:
            return
        now, seen = self._clock.now(), self._seen_progress
        if self.shard.is_closed and is_within_reach(seen, now, self._sample, is_bounded=is_bounded):
            self._leave_to_the_end()
            return
        target = None
        # Read on once before jumping: whoever reads the range has to find its beginning, too.
        if self._is_anchored and not self._is_quiet:
            target = jump_target(
                seen,
                now,
                sample=self._sample,
                nothing_since=self._nothing_since,
                is_bounded=is_bounded,
            )
        if target is None or not await self._jump(target):
            await self._read_on(tail_limit(self._sample))
        elif target < now - _NEAR:
            self._is_behind = True

    @property
    def _seen_progress(self) -> ShardProgress:
        """How far the shard would be read if all that was seen were in a range."""
        if self._last is None:
            return self.progress
        instants = [self.progress.as_of, self._last_arrival]
        return ShardProgress(
            position=resume_after(self._last),
            as_of=max((instant for instant in instants if instant is not None), default=None),
        )

    async def _read_on(self, limit: int) -> None:
        if self._tail is None:
            self._tail = await self._create_publisher(self._seen_progress.position, self.shard)
        self._tail.limit = limit = min(_MOST_RECORDS, limit * self._growth)
        before = self._seen_progress
        page, result = await self._run(self._tail)
        if page is None:
            return
        self._has_ended = result is RunResult.COMPLETE
        fresh = _after(page, before.processed)
        self._check_first(fresh)
        self._is_quiet = _is_tip(page, limit) and is_small_tail(len(fresh), fresh.payload_bytes)
        self._growth = self._growth * 4 if len(page) == limit else 1
        self._is_anchored |= bool(len(page)) or page.millis_behind_latest == 0
        if len(fresh):
            self._append(fresh)
            self._resample(fresh, before)
        if _is_tip(page, limit):
            self._see_tip(page)

    async def _jump(self, target: datetime) -> bool:
        """Take a record that arrived at or after ``target``; say whether there was one."""
        position = StartingPosition.at_timestamp(target)
        publisher = await self._create_publisher(position, self.shard)
        publisher.limit = limit = tail_limit(self._sample, is_jump=True)
        before = self._seen_progress
        page, result = await self._run(publisher)
        if page is None:
            return False
        fresh = _after(page, before.processed)
        if len(fresh):
            self._leap(fresh, publisher)
            self._has_ended = result is RunResult.COMPLETE
            if _is_tip(page, limit):
                self._see_tip(page)
            return True
        if len(page) or not (result is RunResult.COMPLETE or page.millis_behind_latest == 0):
            return False
        if result is RunResult.COMPLETE or self.shard.is_closed:
            # There is no record after the instant, and never will be: what is left before it is
            # read to the end of the shard, whichever record that is.
            self._leave_to_the_end()
            return True
        self._nothing_since = target
        return False

    def _see_tip(self, page: RecordBatch) -> None:
        self.tip_seen_at, self._nothing_since = page.requested_at, None
        if not self.has_news:
            self._renew(page.requested_at)

    def _leave_to_the_end(self) -> None:
        self._has_ended = self._is_gap = True
        self._last = self._last_arrival = None
        self._drop_waiting()

    def _forget_seen(self) -> None:
        self._first = self._last = self._last_arrival = None
        self._is_gap = self._has_ended = False
        self._drop_waiting()

    async def _run(self, publisher: PollingRecordPublisher) -> tuple[RecordBatch | None, RunResult]:
        """Make one call; no page says that it has to be made again later."""
        self.last_look = self._clock.monotonic()
        page = _Collector()
        result = await publisher.run(page)
        if page.batch is not None:
            self.millis_behind_latest = page.batch.millis_behind_latest
        return page.batch, result

    def _check_first(self, fresh: RecordBatch) -> None:
        if self._first is None and not self._is_gap and len(fresh):
            self._first = fresh.first_sequence_number

    def _append(self, fresh: RecordBatch) -> None:
        self._last, arrival = fresh.last_sequence_number, fresh.last_arrival
        self._last_arrival = max(filter(None, (self._last_arrival, arrival)), default=None)
        if not self._is_gap:
            self._sizes += map(len, fresh.payloads)
            self._numbers += fresh.sequence_numbers
            self._arrivals += fresh.arrival_epoch_seconds

    def _leap(self, fresh: RecordBatch, publisher: PollingRecordPublisher) -> None:
        self._is_gap = True
        self._drop_waiting()
        self._append(fresh)
        self._tail = publisher
        seconds = max(fresh.arrival_epoch_seconds) - min(fresh.arrival_epoch_seconds)
        if len(fresh) > 1:
            self._sample = sampled(
                self._sample, sizes=[len(data) for data in fresh.payloads], seconds=seconds
            )

    def _resample(self, fresh: RecordBatch, before: ShardProgress) -> None:
        start = before.as_of or _instant(min(fresh.arrival_epoch_seconds))
        end = _instant(max(fresh.arrival_epoch_seconds))
        self._sample = sampled(
            self._sample,
            sizes=[len(data) for data in fresh.payloads],
            seconds=(end - start).total_seconds(),
        )

    def _renew(self, seen: datetime) -> None:
        """Note that everything that arrived before ``seen`` is in ranges."""
        before = self.progress.as_of
        self.progress = evolve(self.progress, as_of=seen if before is None else max(before, seen))

    def _drop_waiting(self) -> None:
        self._sizes, self._numbers, self._arrivals = [], [], []

    def take(self, count: int | None = None) -> RangeEnd | None:
        """Make a range of what was seen, or of its first ``count`` records; ``None`` if empty."""
        if count is not None and count < len(self._sizes):
            return self._take_some(count) if count else None
        if not self.has_news:
            return None
        before, progress = self.progress, self._seen_progress
        if self.tip_seen_at is not None:
            progress = evolve(
                progress, as_of=max(progress.as_of or self.tip_seen_at, self.tip_seen_at)
            )
        if self._has_ended:
            progress = progress.ended()
        end = RangeEnd(
            progress=progress, first=self._first, payload_bytes=self._expected_bytes(before)
        )
        self._forget_seen()
        self.progress = progress
        return end

    def _take_some(self, count: int) -> RangeEnd:
        last = SequenceNumber(self._numbers[count - 1])
        instants = [self.progress.as_of, _instant(max(self._arrivals[:count]))]
        self.progress = ShardProgress(
            position=resume_after(last), as_of=max(filter(None, instants))
        )
        end = RangeEnd(
            progress=self.progress, first=self._first, payload_bytes=sum(self._sizes[:count])
        )
        del self._sizes[:count], self._numbers[:count], self._arrivals[:count]
        self._first = SequenceNumber(self._numbers[0])
        return end

    def _expected_bytes(self, before: ShardProgress) -> int:
        if not self._is_gap:
            return sum(self._sizes)
        until = self._last_arrival or self._clock.now()
        if self._sample is None or before.as_of is None:
            return 0
        seconds = max(0.0, (until - before.as_of).total_seconds())
        return int(seconds * self._sample.bytes_per_second)


def _is_tip(page: RecordBatch, limit: int) -> bool:
    # A page that is cut off by its Limit may have the arrival time of the tip, and not be it.
    return page.millis_behind_latest == 0 and len(page) < limit


def _after(batch: RecordBatch, processed: SequenceNumber | None) -> RecordBatch:
    return batch if processed is None else batch.slice(batch.count_up_to(processed), len(batch))


def _instant(epoch_seconds: float) -> datetime:
    return datetime.fromtimestamp(epoch_seconds, UTC)
