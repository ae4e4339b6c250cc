"""How far the shards of one reader have been processed in event time. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from attrs import define, evolve, field

from kinesis_publishers.abc import WatermarkAssigner
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import WatermarkConfig
from kinesis_publishers.engine.alignment import Front, common_instant, is_ahead
from kinesis_publishers.engine.delivery import Delivery, ShardStatus
from kinesis_publishers.model import Record, RecordBatch, Shard, ShardKey, ShardProgress

# A parent's children are started at once, or after the next listing; one may be under way.
_LISTINGS_AFTER_END = 2


class ArrivalTime(WatermarkAssigner):
    """Takes the arrival of a record for its event: a shard at its tip has reached that moment."""

    def event_time_of(self, record: Record) -> datetime:
        return record.approximate_arrival_timestamp

    def latest_of(self, batch: RecordBatch) -> datetime | None:
        return batch.last_arrival

    def reached_by(self, arrived: datetime) -> datetime:
        return arrived


@define
class _Mark:
    """Where one shard is.

    Attributes:
        until: what happened before this instant has been processed, but for the disorder.
        taken: the same, with what is being processed.
        changed_at: when its last record was processed, or when it began.
        status: the last answer, once there is one.
        deliveries: how many are being processed.
        listings: how many have come since it has ended; ``None`` while it is read.
    """

    until: datetime | None
    taken: datetime | None
    changed_at: float
    status: ShardStatus | None = None
    deliveries: int = 0
    listings: int | None = None


@define(eq=False)
class ShardWatermarks:
    """Follows the event time of the shards that a reader has."""

    _assigner: WatermarkAssigner
    _config: WatermarkConfig
    _clock: Clock
    _marks: dict[ShardKey, _Mark] = field(factory=dict, init=False)

    @property
    def _disorder(self) -> timedelta:
        return timedelta(seconds=self._config.disorder_seconds)

    def follow(
        self,
        shards: Collection[Shard],
        progress: Mapping[ShardKey, ShardProgress],
        stored: Callable[[ShardKey], datetime | None] | None = None,
    ) -> None:
        """Learn which shards are read; a new one is where its parents are, or its last reader was.

        The others are left out, but for those that have ended and whose children do not follow yet.

        Args:
            shards: all of them.
            progress: where each of them begins.
            stored: says where the last reader of a shard was, if that is known.
        """
        for shard in shards:
            key, mark = shard.key, self._marks.get(shard.key)
            # One that has ended may come again: of a stream that was created again, for instance.
            if mark is None or mark.listings is not None:
                parents = [self._marks.get(one) for one in shard.parent_keys]
                known = common_instant(Front(one.until) for one in parents if one is not None)
                begun = _latest(known, stored and stored(key), self._reached(progress[key]))
                self._marks[key] = _Mark(begun, begun, self._clock.monotonic())
        continued = {key for shard in shards for key in shard.parent_keys}
        keys = {shard.key for shard in shards}
        for key, mark in tuple(self._marks.items()):
            if key not in keys and (mark.listings is None or key in continued):
                del self._marks[key]

    def note_listing(self) -> None:
        """Learn that the shards were listed: what ended long before it has no children here."""
        for mark in self._marks.values():
            if mark.listings is not None:
                mark.listings += 1

    @contextmanager
    def processing(self, delivery: Delivery) -> Iterator[None]:
        """Process a delivery in the context; unless it raises, the shard is behind it then.

        Raises:
            ValueError: the assigner has returned something other than a datetime with a time zone.
        """
        # Before the application may change the batch.
        latest = self._assigner.latest_of(delivery.batch)
        if latest is not None and getattr(latest, "tzinfo", None) is None:
            raise ValueError(
                f"{type(self._assigner).__name__} returned the event time {latest!r} in "
                f"{delivery.shard}: return a datetime with a time zone, or None"
            )
        latest = None if latest is None else latest - self._disorder
        if (mark := self._marks.get(delivery.shard.key)) is None:
            yield
            return
        mark.taken = _latest(mark.taken, latest)
        mark.deliveries += 1
        try:
            yield
            mark.until = _latest(mark.until, latest)
        finally:
            mark.deliveries -= 1
            mark.changed_at = self._clock.monotonic()

    def note(self, status: ShardStatus) -> None:
        """Learn how far a shard has been read and processed."""
        mark = self._marks.get(status.shard.key)
        if mark is None:
            return
        mark.status = status
        mark.until = _latest(mark.until, self._reached(status.progress))
        mark.taken = _latest(mark.taken, mark.until)
        if status.progress.is_ended and mark.listings is None:
            mark.listings = 0

    def _reached(self, progress: ShardProgress) -> datetime | None:
        as_of = progress.as_of
        reached = None if as_of is None else self._assigner.reached_by(as_of)
        return None if reached is None else reached - self._disorder

    def fronts(self) -> dict[ShardKey, Front]:
        """Return where each shard is."""
        return {
            key: Front(one.until, self._is_idle(one), self._is_at_tip(one))
            for key, one in self._marks.items()
        }

    def reading(self, others: Collection[Front]) -> datetime | None:
        """Return the event time that all shards have reached which have something to read.

        ``None`` while that is unknown of one of them, unless it is of the ``others``.
        """
        known = [one for one in others if one.until is not None]
        return common_instant(
            evolve(one, is_idle=one.is_at_tip) for one in (*self.fronts().values(), *known)
        )

    def is_ahead(self, key: ShardKey, reading: datetime | None) -> bool:
        """Say whether a shard is to wait for the others, which have reached ``reading``."""
        mark = self._marks.get(key)
        bound = timedelta(seconds=self._config.lookahead_seconds)
        return mark is not None and is_ahead(Front(mark.taken), reading, bound)

    def _is_idle(self, mark: _Mark) -> bool:
        interval = self._config.idle_interval_seconds
        is_quiet = 0 <= interval <= self._clock.monotonic() - mark.changed_at
        return (is_quiet or mark.listings is not None) and self._is_at_tip(mark)

    def _is_at_tip(self, mark: _Mark) -> bool:
        """Say whether nothing waits, as far as is known: not while its answers stay away."""
        if mark.listings is not None:
            # Its children have what follows.
            return mark.until is None or mark.listings >= _LISTINGS_AFTER_END
        if mark.status is None or mark.deliveries:
            return False
        # ``None`` is no lag that is known.
        return mark.status.lag_seconds(self._clock.now()) == 0.0


def _latest(*instants: datetime | None) -> datetime | None:
    return max((one for one in instants if one is not None), default=None)
