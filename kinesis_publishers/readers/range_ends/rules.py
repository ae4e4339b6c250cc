"""Where to look for the end of a range, and how shards share a limit: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from attrs import astuple, evolve, frozen

from kinesis_publishers.engine.alignment import ReadLimit, Weight
from kinesis_publishers.model import ShardProgress

# Records that arrive while the service answers, or whose arrival times are not in order, are found
# by the next look: the closer to now, the more often a look finds nothing.
_BEHIND_NOW = timedelta(milliseconds=200)
# A look costs a shard's quota and the driver's time: so much at most, by the records seen so far.
_TAIL_RECORDS = 100
_TAIL_BYTES = 256 * 1024
_JUMP_RECORDS = 10
# The end of a burst is read, and so fetched twice, where it is less than this: to divide it further
# would take more rounds, each of which is a micro-batch.
_REST_BYTES = 1024 * 1024
# A range of a shard that lags has about so much at least: for less, a micro-batch costs too much.
_RANGE_BYTES = 32 * 1024 * 1024
# What has less takes its time for other things than bytes.
_TELLING_BYTES = 16 * 1024 * 1024
_SHORTEST_SECONDS = 0.01
# By how much a query that lags goes on faster than time itself, at least. In seconds too: where
# Spark is not twice as fast as the producers, each micro-batch would be longer than the last. More
# only where longer micro-batches are asked for, because the trigger comes seldom.
_HEADWAY = 2.0
_HEADWAY_SECONDS = 60.0
# What a producer can write to one shard (AWS service limits).
_SHARD_BYTES_PER_SECOND = 1024 * 1024
# Arrival times have no parts of a millisecond: what comes within less is not divided by them.
_INSTANT = timedelta(milliseconds=1)
_NARROW = 2 * _INSTANT
# The most that GetRecords returns (AWS service limits): a piece of a range is not less. And tasks
# that read one shard share five calls and 2 MB a second.
_PAGE_RECORDS = 10_000
_PAGE_BYTES = 10 * 1024 * 1024
_MOST_PIECES = 4
# How much the latest sample counts.
_WEIGHT = 0.3


@frozen
class Sample:
    """How fast a shard is written to and how large its records are, by those that were seen."""

    bytes_per_second: float
    record_bytes: float
    # The same, where an aggregate is the records inside it.
    user_record_bytes: float


NO_SAMPLE = Sample(bytes_per_second=1.0, record_bytes=1.0, user_record_bytes=1.0)


def sampled(before: Sample | None, weights: Sequence[Weight], *, seconds: float) -> Sample | None:
    """Return the estimate with records added that came in so many seconds."""
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
    return Sample(*(old + _WEIGHT * (new - old) for old, new in pairs))


@frozen(kw_only=True)
class Portion:
    """How much a query that lags takes in one round, of all shards or of one.

    Attributes:
        payload_bytes: as many as are worth a micro-batch, unless that is less than a shard's least.
        most_bytes: as many as a micro-batch may have, about.
        least_seconds: how much of the shards' time in any case: a query that came less far than
            the time goes on would never catch up.
    """

    payload_bytes: float = 0.0
    most_bytes: float = math.inf
    least_seconds: float = 0.0

    def share(self, shards: int) -> Portion:
        """Return what one of so many shards that lag takes."""
        count = max(1, shards)
        share, most = self.payload_bytes / count, self.most_bytes / count
        return evolve(self, payload_bytes=share, most_bytes=most)

    def after(self, payload_bytes: int, seconds: float, *, target_seconds: float) -> Portion:
        """Return the portion that follows one of so many bytes, which took so long."""
        headway = max(_HEADWAY_SECONDS, target_seconds)
        least = min(_HEADWAY * seconds, seconds + headway)
        following = evolve(self, least_seconds=least)
        if payload_bytes < _TELLING_BYTES:
            return following
        target = payload_bytes / max(_SHORTEST_SECONDS, seconds) * target_seconds
        return evolve(following, payload_bytes=target)


def reach_seconds(sample: Sample | None, share: Portion) -> float:
    """Return how much of a shard's time a range without other limits may cover."""
    rate = _SHARD_BYTES_PER_SECOND if sample is None else sample.bytes_per_second
    worth = max(_RANGE_BYTES, share.payload_bytes)
    return max(share.least_seconds, min(worth, share.most_bytes) / rate)


def latest_end(
    progress: ShardProgress, now: datetime, sample: Sample | None, share: Portion | None
) -> datetime:
    """Return the instant around which a range ends at the latest.

    Args:
        progress: how far the shard is read.
        now: the present.
        sample: what the records that were seen say.
        share: how much the range may be of a shard that lags; ``None`` for all of it.
    """
    latest = now - _BEHIND_NOW
    if share is not None and progress.as_of is not None:
        latest = min(latest, progress.as_of + timedelta(seconds=reach_seconds(sample, share)))
    return latest


def jump_target(
    progress: ShardProgress,
    latest: datetime,
    nothing_since: datetime | None = None,
    *,
    misses: int = 0,
) -> datetime | None:
    """Return the instant at which to look for a record, ``None`` to read on from the position.

    Args:
        progress: how far the shard is read.
        latest: where the range may end.
        nothing_since: an instant after which nothing had arrived.
        misses: how many jumps in a row have found nothing: a burst may be over in no time.
    """
    # A range whose beginning is no record yet must name its first one: a replay checks it.
    if progress.processed is None or progress.as_of is None:
        return None
    target = latest
    if is_narrow(progress, nothing_since):
        return None
    if is_divisible(progress, nothing_since):
        step = _gap(progress, nothing_since) / 2 ** (1 + 2 * misses)
        target = min(target, progress.as_of + max(step, _INSTANT))
    return target if target > progress.as_of else None


def is_narrow(progress: ShardProgress, nothing_since: datetime | None) -> bool:
    """Say whether instants no longer divide what came before ``nothing_since``."""
    return timedelta(0) < _gap(progress, nothing_since) < _NARROW


def is_divisible(progress: ShardProgress, nothing_since: datetime | None) -> bool:
    """Say whether they do."""
    return _gap(progress, nothing_since) >= _NARROW


def rest_limit(
    sample: Sample | None, progress: ShardProgress, nothing_since: datetime | None
) -> int | None:
    """Return how many records of what came before ``nothing_since`` to read; ``None`` to jump."""
    if sample is None:
        return None
    most = _gap(progress, nothing_since).total_seconds() * sample.bytes_per_second
    return max(1, int(_REST_BYTES / sample.record_bytes)) if most <= _REST_BYTES else None


def _gap(progress: ShardProgress, until: datetime | None) -> timedelta:
    return timedelta(0) if until is None or progress.as_of is None else until - progress.as_of


def is_within_reach(
    progress: ShardProgress, now: datetime, sample: Sample | None, share: Portion | None
) -> bool:
    """Say whether everything that is left of a closed shard may be in one range."""
    # As for a jump; and what is unread has no age.
    if progress.processed is None or progress.as_of is None:
        return False
    if share is None:
        return True
    return progress.as_of + timedelta(seconds=reach_seconds(sample, share)) >= now


def tail_limit(sample: Sample | None, *, is_jump: bool = False) -> int:
    """Return the Limit of a look."""
    most = _JUMP_RECORDS if is_jump else _TAIL_RECORDS
    if sample is None:
        return most
    return max(1, min(most, int(_TAIL_BYTES / sample.record_bytes)))


def is_small_tail(records: int, payload_bytes: int) -> bool:
    """Say whether so few records came since the last look that the next one may read them again."""
    return records <= _TAIL_RECORDS // 2 and payload_bytes <= _TAIL_BYTES // 2


def expected_bytes(
    sample: Sample | None, begin: datetime | None, end: ShardProgress, now: datetime
) -> int:
    """Return about how large a range is that was not seen, 0 if nothing tells.

    Its first record, or the last one before it, arrived at ``begin``.
    """
    if sample is None or begin is None:
        return 0
    # What is left of a closed shard ends at an unknown record: its age is that of the beginning.
    until = end.as_of or now
    if end.is_ended and until <= begin:
        until = now
    return int(max(0.0, (until - begin).total_seconds()) * sample.bytes_per_second)


def cut_instants(
    sample: Sample, begin: datetime, payload_bytes: int, piece_records: int
) -> list[datetime]:
    """Return where to cut a range of about so many bytes into pieces of so many user records."""
    wanted = math.ceil(payload_bytes / (piece_records * sample.user_record_bytes))
    page = min(_PAGE_BYTES, _PAGE_RECORDS * sample.record_bytes)
    pieces = min(wanted, int(payload_bytes / page), _MOST_PIECES)
    seconds = payload_bytes / sample.bytes_per_second
    return [begin + timedelta(seconds=seconds * n / pieces) for n in range(1, pieces)]


class _Budget:
    def __init__(self, limit: ReadLimit) -> None:
        self.records = math.inf if limit.records is None else limit.records
        self.payload_bytes = math.inf if limit.payload_bytes is None else limit.payload_bytes
        self._is_untouched = True

    def take(self, weights: Sequence[Weight], most: int) -> int:
        """Return how many of these fit, at most ``most``; they count from now on."""
        count = 0
        for weight in weights[:most]:
            fits = self.records >= weight.records and self.payload_bytes >= weight.payload_bytes
            # One that alone exceeds the limit goes through, alone: otherwise nothing ever would.
            if not (fits or self._is_untouched):
                break
            self._is_untouched = False
            self.records -= weight.records
            self.payload_bytes -= weight.payload_bytes
            count += 1
        return count


def shares(weights: Sequence[Sequence[Weight]], limit: ReadLimit, *, first: int = 0) -> list[int]:
    """Return how many Kinesis records of each shard are admitted: evenly, then what is left.

    Args:
        weights: per shard, what the records that wait count for, in their order.
        limit: the limit for all of them together; it holds to the record.
        first: which shard is served first. Changing it from round to round lets every shard
            have its turn, however small the limit.
    """
    count = len(weights)
    order = [(first + step) % count for step in range(count)] if count else []
    admitted = [0] * count
    budget = _Budget(limit)
    even, even_bytes = max(1, budget.records / max(1, count)), budget.payload_bytes / max(1, count)
    for index in order:
        most = _even_share(weights[index], even, even_bytes)
        admitted[index] = budget.take(weights[index], most)
    for index in order:
        rest = weights[index][admitted[index] :]
        admitted[index] += budget.take(rest, len(rest))
    return admitted


def _even_share(weights: Sequence[Weight], records: float, payload_bytes: float) -> int:
    total_records = total_bytes = 0
    for index, weight in enumerate(weights):
        total_records += weight.records
        total_bytes += weight.payload_bytes
        if total_records > records or total_bytes > payload_bytes:
            return max(1, index)
    return len(weights)
