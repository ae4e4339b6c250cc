"""The watermarks of one reader's shards. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from attrs import define, evolve, field

from kinesis_publishers.abc import WatermarkAssigner
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import WatermarkConfig
from kinesis_publishers.engine.alignment import Front, common_instant, latest_known
from kinesis_publishers.engine.delivery import Delivery, ShardStatus
from kinesis_publishers.model import Record, RecordBatch, Shard, ShardKey, ShardProgress

# Children start with their parent's end or with the next listing, and one may be under way.
_LISTINGS_AFTER_END = 2


class ArrivalTime(WatermarkAssigner):
    """Uses arrival times as event times: a shard at its tip advances with the time."""

    def event_time_of(self, record: Record) -> datetime:
        return record.approximate_arrival_timestamp

    def latest_of(self, batch: RecordBatch) -> datetime | None:
        return batch.last_arrival

    def reached_by(self, arrived: datetime) -> datetime:
        return arrived


@define
class _Mark:
    """The state of one shard.

    Attributes:
        until: its watermark; ``None`` while unknown.
        taken: its watermark after the deliveries in progress.
        changed_at: when its last delivery was processed, or when reading began.
        deliveries: the number of deliveries in progress.
        listings: the number of listings since its end; ``None`` while it is read.
    """

    until: datetime | None
    taken: datetime | None
    changed_at: float
    status: ShardStatus | None = None
    deliveries: int = 0
    listings: int | None = None


@define(eq=False)
class ShardWatermarks:
    """Keeps the watermark of each shard of a reader."""

    _assigner: WatermarkAssigner
    _config: WatermarkConfig
    _clock: Clock
    _marks: dict[ShardKey, _Mark] = field(factory=dict, init=False)

    def follow(
        self,
        shards: Collection[Shard],
        progress: Mapping[ShardKey, ShardProgress],
        stored: Callable[[ShardKey], datetime | None] | None = None,
    ) -> None:
        """Update the set of shards that are read.

        A new shard starts at the watermark of its parents or of its last reader, which ``stored``
        returns. A shard that is no longer read is forgotten, but one that has ended is kept until
        its children follow.
        """
        for shard in shards:
            key, mark = shard.key, self._marks.get(shard.key)
            # A shard that has ended comes again if its stream was deleted and created again.
            if mark is None or mark.listings is not None:
                # A parent that another worker has read is unknown here, and may be behind.
                parents = [self._marks.get(one) for one in shard.parent_keys]
                known = common_instant(Front(one.until if one else None) for one in parents)
                begun = latest_known(known, stored and stored(key), self._reached(progress[key]))
                self._marks[key] = _Mark(begun, begun, self._clock.monotonic())
        continued = {key for shard in shards for key in shard.parent_keys}
        keys = {shard.key for shard in shards}
        for key, mark in tuple(self._marks.items()):
            if key not in keys and (mark.listings is None or key in continued):
                del self._marks[key]

    def note_listing(self) -> None:
        """Update ended shards after a listing, when new children have started."""
        being_read = {key for key, mark in self._marks.items() if mark.listings is None}
        for key, mark in self._marks.items():
            children = mark.status.child_shards if mark.status else ()
            names = {one for child in children for one in child.parent_shard_ids}
            # A merged child starts once its other parent has ended, too.
            is_waited_for = any(ShardKey(key.stream_arn, one) in being_read for one in names)
            if mark.listings is not None and not is_waited_for:
                mark.listings += 1

    @property
    def ended(self) -> list[ShardKey]:
        """The shards that have ended, and hold the places of their children."""
        return [key for key, mark in self._marks.items() if mark.listings is not None]

    def forget(self, keys: Iterable[ShardKey]) -> None:
        """Forget ended shards whose children hold their own places already."""
        for key in keys:
            del self._marks[key]

    @contextmanager
    def processing(self, delivery: Delivery) -> Iterator[None]:
        """Process a delivery in the context; if that succeeds, the watermark of its shard advances.

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
        latest = self._less_disorder(latest)
        if (mark := self._marks.get(delivery.shard.key)) is None:
            yield
            return
        mark.taken = latest_known(mark.taken, latest)
        mark.deliveries += 1
        try:
            yield
            mark.until = latest_known(mark.until, latest)
        finally:
            mark.deliveries -= 1
            mark.changed_at = self._clock.monotonic()

    def note(self, status: ShardStatus) -> bool:
        """Update the state of a shard; return whether to publish the watermark."""
        mark = self._marks.get(status.shard.key)
        if mark is None:
            return False
        before, mark.status = mark.status, status
        mark.until = latest_known(mark.until, self._reached(status.progress))
        mark.taken = latest_known(mark.taken, mark.until)
        if status.progress.is_ended and mark.listings is None:
            mark.listings = 0
        has_moved = before is None or before.progress.position != status.progress.position
        return has_moved or status.progress.is_ended

    def _reached(self, progress: ShardProgress) -> datetime | None:
        as_of = progress.as_of
        return None if as_of is None else self._less_disorder(self._assigner.reached_by(as_of))

    def _less_disorder(self, instant: datetime | None) -> datetime | None:
        disorder = timedelta(seconds=self._config.disorder_seconds)
        return None if instant is None else instant - disorder

    def fronts(self) -> dict[ShardKey, Front]:
        """Return the progress in time of each shard."""
        return {key: self.front(key) for key in self._marks}

    def front(self, key: ShardKey) -> Front:
        """Return how far a shard has come that is followed."""
        mark = self._marks[key]
        return Front(mark.until, self._is_idle(mark), self._is_at_tip(mark))

    def reading(self, others: Collection[Front]) -> datetime | None:
        """Return the least watermark of all shards that are not at their tips.

        It is ``None`` while that of such a shard is unknown, unless another worker reads it.
        """
        known = [one for one in others if one.until is not None]
        return common_instant(
            evolve(one, is_idle=one.is_at_tip) for one in (*self.fronts().values(), *known)
        )

    def is_ahead(self, key: ShardKey, reading: datetime | None) -> bool:
        """Return whether a shard is too far ahead of ``reading`` for more to be read."""
        mark = self._marks.get(key)
        if mark is None or mark.taken is None:
            return False
        bound = timedelta(seconds=self._config.lookahead_seconds)
        return reading is None or mark.taken - reading > bound

    def _is_idle(self, mark: _Mark) -> bool:
        interval = self._config.idle_interval_seconds
        is_quiet = 0 <= interval <= self._clock.monotonic() - mark.changed_at
        return (is_quiet or mark.listings is not None) and self._is_at_tip(mark)

    def _is_at_tip(self, mark: _Mark) -> bool:
        if mark.listings is not None:
            # The shard holds the place of its children until they follow.
            return mark.listings >= _LISTINGS_AFTER_END
        if mark.status is None or mark.deliveries:
            return False
        # An unknown lag is not 0.
        return mark.status.lag_seconds(self._clock.now()) == 0.0
