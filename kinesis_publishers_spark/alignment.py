"""Keeps shards together in time while they are fetched: which shards wait, and for how long."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from attrs import define

from kinesis_publishers import KinesisDataFetcher, ShardKey, ShardStatus
from kinesis_publishers.config import PollingConfig
from kinesis_publishers.readers import (
    LATE_AFTER,
    Front,
    Patience,
    PendingPool,
    ShardLeftBehind,
)
from kinesis_publishers_spark.chunks import EVERYTHING, NOTHING, Chunk
from kinesis_publishers_spark.options import Alignment, SparkConfig

if TYPE_CHECKING:
    from kinesis_publishers_spark.micro_batches import Query

_LOGGER = logging.getLogger(__name__)

# A shard that is further ahead than this pauses while the pool is half full: the rest of the room
# belongs to the shards for which the others wait. With a smaller bound, level shards would
# alternate.
_BOUND = timedelta(seconds=3)
_ROOM_AHEAD = 1 / 2
# How many shards may exceed the pool at once: their records may free room for the others.
_FAVOURED_AT_ONCE = 8
# How long an answer proves that a shard is at its tip. A subscription sends an event every 5 s, and
# reopens within the same time.
_POLLED_TIP_SECONDS, _TIP_SECONDS = 5.0, 15.0
_POLLS_MISSED = 3
# A larger difference between the starts of shards is logged.
_FAR_APART = timedelta(minutes=1)


@define
class _Shard:
    """How far a shard has been fetched.

    Attributes:
        until: all records that arrived before this instant are fetched.
        searched: the same, estimated from the lag in the last answer.
        tip_until: until when the last answer counts as one at the tip, by the monotonic clock.
        arrived: the latest arrival among the fetched records.
        begins: the arrival of the first one.
        has_ended: whether it was read to its end; its children may have started there.
        is_finished: whether reading has stopped before its end.
        was_lost: whether the others have stopped waiting for it at least once.
    """

    until: datetime = NOTHING
    searched: datetime = NOTHING
    tip_until: float = -math.inf
    arrived: datetime = NOTHING
    begins: datetime | None = None
    has_ended: bool = False
    is_finished: bool = False
    was_lost: bool = False


class AlignedShards:
    """Tracks the instant up to which all shards of a session are fetched.

    Args:
        query: has the options of alignment, the count of late records, and the instant up to which
            records were handed out.
        moved: called when :attr:`until` has changed.

    Attributes:
        until: the common instant: all records that arrived earlier have been fetched.
        lost: the shards that the others no longer wait for.
    """

    def __init__(self, query: Query, moved: Callable[[], object]) -> None:
        self._query, self._clock, self._moved = query, query.clock, moved
        spark = SparkConfig.from_properties(query.properties)
        self.is_on = spark.alignment is Alignment.ARRIVAL
        self._patience = Patience[ShardKey](spark.alignment_patience_seconds)
        poll_seconds = PollingConfig.from_properties(query.properties).interval_seconds
        self._polled_tip_seconds = max(_POLLED_TIP_SECONDS, _POLLS_MISSED * poll_seconds)
        self._shards: dict[ShardKey, _Shard] = {}
        # The positions of the shards that hold the others back.
        self._holding: dict[ShardKey, datetime] = {}
        self.until = EVERYTHING
        self.lost: set[ShardKey] = set()
        # The shards that wait because they are ahead, with their positions.
        self._held: dict[ShardKey, tuple[datetime, asyncio.Future[None]]] = {}
        # The shards that may exceed the pool until they answer.
        self._favoured: set[ShardKey] = set()

    def switch_off(self) -> None:
        """Stop aligning the shards: the source does not know when its records arrived."""
        if not self.is_on:
            return
        _LOGGER.warning(
            "The records have no arrival times: each shard is read as fast as possible, as with "
            "kinesis.spark.alignment=none."
        )
        self.is_on = False
        self._holding.clear()
        self._follow()

    def _known(self, key: ShardKey) -> _Shard:
        shard = self._shards.get(key)
        if shard is None:
            shard = self._shards[key] = _Shard()
            self._hold(key, shard.until)
        return shard

    def _hold(self, key: ShardKey, at: datetime | None) -> None:
        """Set the instant at which a shard holds the others back; ``None`` if it does not."""
        before = self._holding.pop(key, None)
        if at is not None and self.is_on:
            self._holding[key] = at
            if at < self.until:
                self._follow(at)
        # The minimum over many shards is expensive: compute it only when it changes.
        if before is not None and before == self.until != at:
            self._follow()

    def _follow(self, until: datetime | None = None) -> None:
        if until is None:
            until = min(self._holding.values(), default=EVERYTHING)
        if until != self.until:
            self.until = until
            self._moved()
            self._wake(self._limit)

    def note(self, chunk: Chunk) -> None:
        """Add fetched records; :meth:`observe` follows with the new position of their shard."""
        shard = self._known(chunk.shard)
        shard.arrived = max(shard.arrived, chunk.until)
        shard.begins = shard.begins or chunk.begins

    def arrived(self, keys: Collection[ShardKey]) -> datetime:
        """Return the latest arrival among the fetched records of some shards."""
        return max((one.arrived for k in keys if (one := self._shards.get(k))), default=NOTHING)

    def observe(self, status: ShardStatus) -> None:
        """Update how far a shard has been read."""
        key, shard = status.shard.key, self._known(status.shard.key)
        before = shard.until
        lag, is_at_tip = status.millis_behind_latest, status.millis_behind_latest == 0
        if status.progress.is_ended or (
            is_at_tip and (status.shard.is_closed or status.child_shards)
        ):
            # The answer that shows the end is at the tip, but the children have started by then.
            shard.has_ended = status.progress.is_ended
            shard.until, shard.tip_until = shard.arrived, -math.inf
        else:
            seen = status.progress.as_of, status.progress.position.timestamp
            shard.until = max(before, *(one for one in seen if one is not None), NOTHING)
            # The service's lag is exact enough to show progress through a gap without records.
            shard.searched = status.read_until or shard.searched
            seconds = self._polled_tip_seconds if status.is_polled else _TIP_SECONDS
            # The others wait only once for a publisher that delivers nothing and never reports the
            # tip.
            is_silent = lag is None and shard.was_lost and shard.until == before
            is_idle = is_at_tip or is_silent
            shard.tip_until = self._clock.monotonic() + seconds if is_idle else -math.inf
        if shard.until != before:
            self.lost.discard(key)
        self._favoured.discard(key)
        self._settle(key, shard)

    def _settle(self, key: ShardKey, shard: _Shard) -> None:
        is_idle = self._clock.monotonic() < shard.tip_until or shard.is_finished
        self._hold(key, None if is_idle or key in self.lost else shard.until)

    def finish(self, key: ShardKey) -> None:
        """Record that reading a shard has stopped."""
        self._known(key).is_finished = True
        self._hold(key, None)

    def follow(self, fetcher: KinesisDataFetcher) -> None:
        """Update which shards are being read."""
        running = fetcher.statuses
        for one in running:
            # Before the first answer, only the beginning of a shard is known.
            if self._known(one.shard.key).until == NOTHING:
                self.observe(one)
        keys = {one.shard.key for one in running}
        for key in self._shards.keys() - keys:
            # A shard that has ended is kept until its children are read.
            if fetcher.has_children_of_ended or not self._shards[key].has_ended:
                self._hold(key, None)
                del self._shards[key]

    @property
    def _limit(self) -> datetime:
        return EVERYTHING if self.until > EVERYTHING - _BOUND else self.until + _BOUND

    async def wait(self, key: ShardKey, pool: PendingPool) -> None:
        """Wait while a shard is ahead of the others and the pool is at least half full."""
        shard = self._known(key)
        while shard.until > self._limit and pool.filled >= _ROOM_AHEAD:
            future = asyncio.get_running_loop().create_future()
            self._held[key] = shard.until, future
            try:
                await future
            finally:
                del self._held[key]

    def _wake(self, limit: datetime) -> None:
        for until, future in self._held.values():
            if until <= limit and not future.done():
                future.set_result(None)

    def relieve(self, pool: PendingPool, is_stuck: Callable[[], bool]) -> None:
        """Let shards continue if there is room, or if no room can come free without them.

        Args:
            pool: the room that all shards share.
            is_stuck: returns whether records wait and none of them may be handed out.
        """
        if pool.filled < _ROOM_AHEAD:
            self._wake(EVERYTHING)
        left = _FAVOURED_AT_ONCE - len(self._favoured)
        if left <= 0 or not pool.waiter_count or not is_stuck():
            return
        # No room becomes free until the shards that are furthest behind have answered.
        waiting = pool.waiting
        last = [key for key, at in self._holding.items() if at == self.until and key in waiting]
        for key in sorted(last, key=str)[:left]:
            self._favoured.add(key)
            pool.favour(key)

    def look(self, fetcher: KinesisDataFetcher, *, is_waiting: bool) -> None:
        """Update what changes with time alone: idle shards, and shards that keep others waiting.

        The session calls it every second.

        Args:
            fetcher: reads the shards.
            is_waiting: whether records wait. Only then do the others stop waiting for a shard.
        """
        if not self.is_on:
            return
        # A shard that has not answered by now must not withhold room from others.
        self._favoured.clear()
        self.follow(fetcher)
        for key, shard in self._shards.items():
            self._settle(key, shard)
        if not is_waiting:
            return
        counting = self._holding.keys() | self.lost
        fronts = {
            key: Front(max(one.until, one.searched), is_idle=key not in counting)
            for key, one in self._shards.items()
        }
        # A shard that waits for the others, or for room, is healthy.
        waiting = fetcher.pool.waiting | self._held.keys()
        excused = [key for key in self._shards if key in waiting]
        lost = self._patience.lost(fronts, self._clock.monotonic(), excused=excused)
        furthest = max((one.until for one in self._shards.values()), default=NOTHING)
        for key in lost - self.lost:
            self._shards[key].was_lost = True
            until = self._shards[key].until
            seconds = None if until == NOTHING else (furthest - until).total_seconds()
            fetcher.events(ShardLeftBehind(shard=key, seconds=seconds))
        self.lost = lost
        for key in lost:
            self._hold(key, None)

    def hand_out(self, chunks: Collection[Chunk]) -> None:
        """Count the late records of a micro-batch, which has at least one record."""
        latest, before = max(one.until for one in chunks), self._query.aligned_until
        if before is None:
            self._tell_distance()
        else:
            latest = max(latest, before)
            for one in chunks:
                if late := one.count_older(before - LATE_AFTER):
                    self._query.late[one.shard] += late
        self._query.aligned_until = latest

    def _tell_distance(self) -> None:
        begun = {one.begins: key for key, one in self._shards.items() if one.begins is not None}
        if len(begun) < 2 or (distance := max(begun) - min(begun)) <= _FAR_APART or not self.is_on:
            return
        _LOGGER.info(
            "The shards start up to %.0f s apart. The others wait for %s, which is the furthest "
            "behind.",
            distance.total_seconds(),
            begun[min(begun)],
        )
