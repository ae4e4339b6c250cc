"""Where to look for the ends of ranges, and how much of a backlog a round has. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import astuple, define, evolve, field, frozen

from kinesis_publishers.engine.alignment import Weight
from kinesis_publishers.model import RecordBatch

# The next look finds records that arrive during this one, or whose arrival times are out of order.
# The closer to now a look is, the more often it finds nothing.
BEHIND_NOW = timedelta(milliseconds=200)
# The limits of one look, which costs the shard's quota and the driver's time.
_TAIL_RECORDS = 100
_TAIL_BYTES = 256 * 1024
_JUMP_RECORDS = 10
# The driver and an executor both fetch this much, to measure a burst or to find the last record
# before a silence.
_REST_BYTES = 1024 * 1024
# The approximate minimum of a range of a lagging shard: a micro-batch of less costs too much.
_RANGE_BYTES = 32 * 1024 * 1024
# Below this size the duration of a micro-batch says nothing about the rate.
_TELLING_BYTES = 16 * 1024 * 1024
_SHORTEST_SECONDS = 0.01
# A lagging query advances at least this much faster than time. The limit in seconds keeps
# micro-batches from growing without end where Spark is less than twice as fast as the producers.
# Only a rare trigger, which asks for longer micro-batches, raises it.
_HEADWAY = 2.0
_HEADWAY_SECONDS = 60.0
# What a producer can write to one shard (AWS service limits).
_SHARD_BYTES_PER_SECOND = 1024 * 1024
# The resolution of arrival times.
INSTANT = timedelta(milliseconds=1)
# The most that one GetRecords returns (AWS service limits).
MOST_RECORDS = 10_000
# As much is the least for a piece of a range: tasks that read one shard share five calls and 2 MB a
# second.
_PAGE_RECORDS, _PAGE_BYTES = MOST_RECORDS, 10 * 1024 * 1024
_MOST_PIECES = 4
# A shard allows five new iterators a second (AWS service limits), and its readers need some.
_JUMPS_AT_ONCE = 5.0
_JUMPS_PER_SECOND = 3.0
# How far before a silence its last record is sought first, and then, step by step.
_FIRST_STEP, _LONGEST_STEP, _BACK_GROWTH = timedelta(seconds=1), timedelta(days=366), 4
# No retention is longer.
_LONGEST_SECONDS = 400 * 86_400.0
# The weight of the latest sample.
_WEIGHT = 0.3


@frozen
class Sample:
    """The rate of a shard and the size of its records, estimated from those that were seen.

    ``user_record_bytes`` is that of the records inside aggregates.
    """

    bytes_per_second: float
    record_bytes: float
    user_record_bytes: float


NO_SAMPLE = Sample(bytes_per_second=1.0, record_bytes=1.0, user_record_bytes=1.0)


def sampled(before: Sample | None, weights: Sequence[Weight], *, seconds: float) -> Sample | None:
    """Return the estimate after records that came within ``seconds``."""
    if not weights:
        return before
    size, count = sum(one.payload_bytes for one in weights), sum(one.records for one in weights)
    fresh = Sample(
        bytes_per_second=min(_SHARD_BYTES_PER_SECOND, max(1.0, size / max(seconds, 0.001))),
        record_bytes=max(1.0, size / len(weights)),
        # An aggregate may hold nothing.
        user_record_bytes=max(1.0, size / max(1, count)),
    )
    pairs = zip(astuple(before or fresh), astuple(fresh), strict=True)
    return Sample(*(_averaged(old, new) for old, new in pairs))


def _averaged(old: float, new: float) -> float:
    """Follow a rise linearly and a fall in orders of magnitude: the rate of a burst is too high."""
    return old + _WEIGHT * (new - old) if new > old else old * (new / old) ** _WEIGHT


@frozen(kw_only=True)
class Portion:
    """How much a query that lags takes in one round, of all shards or of one.

    Attributes:
        payload_bytes: how many are worth a micro-batch; a shard has a minimum of its own.
        most_bytes: the approximate maximum of a micro-batch.
        least_seconds: the minimum of the shards' time per round: with less than the time that
            passes, a query would never catch up.
        is_first: whether what was seen of all shards is enough, so that it comes at once.
    """

    payload_bytes: float = 0.0
    most_bytes: float = math.inf
    least_seconds: float = 0.0
    is_first: bool = False

    def share(self, shards: int) -> Portion:
        """Return the portion of one of so many shards that lag."""
        count = max(1, shards)
        return evolve(
            self, payload_bytes=self.payload_bytes / count, most_bytes=self.most_bytes / count
        )

    def times(self, count: int) -> Portion:
        """Return this many portions."""
        worth = max(_RANGE_BYTES, self.payload_bytes)
        return evolve(self, payload_bytes=count * worth, most_bytes=count * self.most_bytes)

    def after(self, payload_bytes: int, seconds: float, *, target_seconds: float) -> Portion:
        """Return the portion after one of this size and duration."""
        headway = max(_HEADWAY_SECONDS, target_seconds)
        least = min(_HEADWAY * seconds, seconds + headway)
        following = evolve(self, least_seconds=least)
        if payload_bytes < _TELLING_BYTES:
            return following
        target = payload_bytes / max(_SHORTEST_SECONDS, seconds) * target_seconds
        return evolve(following, payload_bytes=target)


def portion_end(places: Sequence[tuple[datetime, Sample | None]], portion: Portion) -> datetime:
    """Return the instant up to which the shards together have about one portion.

    It is in whole milliseconds, and later than the first of ``places``: all that arrived in a shard
    before that instant is in ranges.
    """
    rates = sorted(
        (instant, _SHARD_BYTES_PER_SECOND if sample is None else sample.bytes_per_second)
        for instant, sample in places
    )
    worth = max(_RANGE_BYTES * len(places), portion.payload_bytes)
    left = min(worth, portion.most_bytes)
    first = reached = rates[0][0]
    rate = 0.0
    for instant, bytes_per_second in rates:
        filled = rate * (instant - reached).total_seconds()
        if filled >= left:
            break
        left, rate, reached = left - filled, rate + bytes_per_second, instant
    seconds = min(left / rate, _LONGEST_SECONDS)
    end = max(
        reached + timedelta(seconds=seconds), first + timedelta(seconds=portion.least_seconds)
    )
    return max(whole_millisecond(end), first + INSTANT)


def whole_millisecond(instant: datetime) -> datetime:
    """Return the instant without parts of a millisecond, which is how instants travel."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def tail_limit(sample: Sample | None, *, is_jump: bool = False) -> int:
    """Return the Limit of a look."""
    most = _JUMP_RECORDS if is_jump else _TAIL_RECORDS
    return max(1, min(most, rest_limit(sample, _TAIL_BYTES)))


def rest_limit(sample: Sample | None, payload_bytes: int = _REST_BYTES) -> int:
    """Return how many records have about this many bytes; those of a page if unknown."""
    fitting = int(payload_bytes / (sample or NO_SAMPLE).record_bytes)
    return max(1, min(_PAGE_RECORDS, fitting))


def is_little(sample: Sample | None, seconds: float, *, records: int | None = None) -> bool:
    """Return whether a period probably has few records, in bytes and, if given, in ``records``."""
    if sample is None:
        return seconds <= 1.0
    expected = seconds * sample.bytes_per_second
    return expected <= _REST_BYTES and (
        records is None or expected <= records * sample.record_bytes
    )


def is_small_tail(records: int, payload_bytes: int) -> bool:
    """Return whether few enough records came since the last look to read them again."""
    return records <= _TAIL_RECORDS // 2 and payload_bytes <= _TAIL_BYTES // 2


def expected_bytes(sample: Sample | None, begin: datetime | None, until: datetime | None) -> int:
    """Return the approximate size of a range of records that arrived between two instants.

    It is 0 if nothing tells.
    """
    if sample is None or begin is None or until is None:
        return 0
    return int(max(0.0, (until - begin).total_seconds()) * sample.bytes_per_second)


def cut_instants(
    sample: Sample, begin: datetime, payload_bytes: int, piece_records: int
) -> list[datetime]:
    """Return where to cut a range of this approximate size into pieces of this many records."""
    wanted = math.ceil(payload_bytes / (piece_records * sample.user_record_bytes))
    page = min(_PAGE_BYTES, _PAGE_RECORDS * sample.record_bytes)
    pieces = min(wanted, int(payload_bytes / page), _MOST_PIECES)
    seconds = payload_bytes / sample.bytes_per_second
    return [begin + timedelta(seconds=seconds * n / pieces) for n in range(1, pieces)]


@frozen
class Step:
    """One call for records: it reads on, or jumps to those that arrived ``since`` an instant."""

    limit: int
    since: datetime | None = None


@define(eq=False)
class LookPlanner:
    """Decides where the next call of a look goes, by what the earlier ones have shown.

    A look *jumps* to an instant and takes a record from there, so that a range of any size costs
    two small calls: it ends before that record. Or it *reads on* from where the last call ended,
    which costs one call and finds the tip of a shard that has little traffic. Where nothing follows
    the instant, the last record before it is sought, nearer and nearer.

    Attributes:
        sample: how fast the shard is written to.
        is_quiet: whether so little comes that reading on finds the tip.
        growth: by how much more than planned is read on, because a burst continues.
        nothing_since: when the shard had no more records, as a jump has shown.
    """

    sample: Sample | None = field(default=None, init=False)
    is_quiet: bool = field(default=False, init=False)
    growth: int = field(default=1, init=False)
    nothing_since: datetime | None = field(default=None, init=False)
    # More than usual where a few records arrived at one instant, which does not tell how fast the
    # shard fills.
    _jump_records: int | None = field(default=None, init=False)
    # How far before the silence its last record is sought.
    _back: timedelta = field(default=_FIRST_STEP, init=False)
    _is_tail_untried: bool = field(default=False, init=False)
    _jumps_left: float = field(default=0.0, init=False)
    _counted_at: float = field(default=-math.inf, init=False)

    def may_jump(self, now: float, *, keep: int = 0) -> bool:
        """Take one jump, a GetShardIterator, if that is allowed and ``keep`` more are left.

        ``now`` is on the monotonic clock.
        """
        earned = _JUMPS_PER_SECOND * (now - self._counted_at)
        self._jumps_left, self._counted_at = min(_JUMPS_AT_ONCE, self._jumps_left + earned), now
        if self._jumps_left < 1 + keep:
            return False
        self._jumps_left -= 1.0
        return True

    def read_on(self, limit: int | None = None) -> Step:
        """Return the step that takes about this many of the next records."""
        return Step(min(MOST_RECORDS, (limit or tail_limit(self.sample)) * self.growth))

    def next(self, latest: datetime, target: datetime, now: float) -> Step | None:
        """Return the next step to ``target``; ``None`` if it is a jump, and too early.

        ``latest`` is the latest arrival that was seen, ``now`` on the monotonic clock.
        """
        sample, limit = self.sample, tail_limit(self.sample)
        until = self.nothing_since or target
        seconds = (until - latest).total_seconds()
        if self.nothing_since is not None:
            if self._is_tail_untried:
                self._is_tail_untried = False
                return self.read_on(limit)
            if until - latest <= 2 * INSTANT:
                # Times do not divide an instant.
                return self.read_on(rest_limit(sample))
            # Where a page was not enough, or records come in bursts, the rate tells nothing.
            tells = self.growth == 1 and self._jump_records is None
            if tells and is_little(sample, seconds):
                rate = sample or NO_SAMPLE
                # Enough, mostly.
                expected = 2 * seconds * rate.bytes_per_second / rate.record_bytes
                return self.read_on(max(_TAIL_RECORDS, int(expected)))
            target = max(latest + INSTANT, until - min(self._back, (until - latest) / 2))
        elif self.is_quiet or (self.growth == 1 and is_little(sample, seconds, records=limit)):
            return self.read_on(limit)
        if not self.may_jump(now):
            return None
        return Step(self._jump_records or tail_limit(sample, is_jump=True), target)

    def learn(
        self, fresh: RecordBatch, counts: Sequence[int], since: datetime | None, *, is_cut: bool
    ) -> None:
        """Measure the write rate by new records, unless a burst continues after them.

        ``counts`` says how many user records each has, ``since`` from when on they arrived, and
        ``is_cut`` whether more may follow.
        """
        arrivals, most = fresh.arrival_epoch_seconds, rest_limit(self.sample)
        if is_cut and len(fresh) < most and arrivals and arrivals[0] == arrivals[-1]:
            # The next jump takes more, so that it reaches the next burst.
            self._jump_records = min(most, len(fresh) * 10)
        elif len(arrivals) >= (2 if since is None else 1):
            begin = min(arrivals) if since is None else since.timestamp()
            weights = list(map(Weight, map(len, fresh.payloads), counts))
            self.sample = sampled(self.sample, weights, seconds=max(arrivals) - begin)

    def note_nothing(self, since: datetime) -> None:
        """Take note that no record has arrived since then."""
        if self.nothing_since is None:
            # Mostly nothing has come at all, which one call shows.
            self._back, self._is_tail_untried = _FIRST_STEP, True
        else:
            self._back = min(self._back * _BACK_GROWTH, _LONGEST_STEP)
        self.nothing_since = since
