"""Shards that are fetched together in time: who waits for whom, and for how long."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from attrs import define

from kinesis_publishers import KinesisDataFetcher, ShardKey, ShardStatus
from kinesis_publishers.config import Alignment, PollingConfig, SparkConfig
from kinesis_publishers.readers import (
    LATE_AFTER,
    Front,
    Patience,
    PendingPool,
    ShardLeftBehind,
)
from kinesis_publishers_spark.chunks import EVERYTHING, NOTHING, Chunk

if TYPE_CHECKING:
    from kinesis_publishers_spark.micro_batches import Query

_LOGGER = logging.getLogger(__name__)

# Who is further ahead than this is not read on while the pool is half full: what is left belongs to
# the shards that the others wait for. Less than that is no reason to wait, or shards that are level
# would take turns.
_BOUND = timedelta(seconds=3)
_ROOM_AHEAD = 1 / 2
# How many are read beyond the pool at once: what the others bring may show that there is no need.
_FAVOURED_AT_ONCE = 8
# How long an answer shows that a shard is at its tip. A subscription sends something every 5 s, and
# is opened again within as long.
_POLLED_TIP_SECONDS, _TIP_SECONDS = 5.0, 15.0
_POLLS_MISSED = 3
# Shards that begin further apart than this are worth a line.
_FAR_APART = timedelta(minutes=1)


@define
class _Shard:
    """How far a shard has come.

    Attributes:
        until: all that arrived before this instant has been fetched.
        searched: the same by the lag of the last answer.
        tip_until: until when, by the monotonic clock, its last answer shows it to be at its tip.
        arrived: the latest arrival that was fetched.
        begins: the first one.
        has_ended: whether it was read to its end; its children may have begun where that was.
        is_finished: whether it is read no further, although it has not ended.
        was_lost: whether the others once stopped waiting for it.
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
    """Knows up to which instant all shards of a session have been fetched.

    Args:
        query: how the shards wait for each other, and its count of late records.
        moved: is called when :attr:`until` has changed.

    Attributes:
        until: the common instant: no shard has an earlier record that was not fetched.
        lost: the shards that the others do not wait for any longer.
    """

    def __init__(self, query: Query, moved: Callable[[], object]) -> None:
        self._query, self._clock, self._moved = query, query.clock, moved
        spark = SparkConfig.from_properties(query.properties)
        self.is_on = spark.alignment is Alignment.ARRIVAL
        self._patience = Patience[ShardKey](spark.alignment_patience_seconds)
        poll_seconds = PollingConfig.from_properties(query.properties).interval_seconds
        self._polled_tip_seconds = max(_POLLED_TIP_SECONDS, _POLLS_MISSED * poll_seconds)
        self._shards: dict[ShardKey, _Shard] = {}
        # Where those stand that hold the others back.
        self._holding: dict[ShardKey, datetime] = {}
        self.until = EVERYTHING
        self.lost: set[ShardKey] = set()
        # Those that wait because they are ahead, and how far they have come.
        self._held: dict[ShardKey, tuple[datetime, asyncio.Future[None]]] = {}
        # Those that were given room beyond the pool, until they answer.
        self._favoured: set[ShardKey] = set()

    def switch_off(self) -> None:
        """Stop aligning the shards: the source does not tell when its records arrived."""
        if not self.is_on:
            return
        _LOGGER.warning(
            "The records have no arrival times: each shard is read as fast as it can be, as with "
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
        """Note where a shard holds the others back; ``None`` if it does not."""
        before = self._holding.pop(key, None)
        if at is not None and self.is_on:
            self._holding[key] = at
            if at < self.until:
                self._follow(at)
        # With many shards the least is looked for only when it moves.
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
        """Learn what was fetched, before :meth:`observe` learns where that has led."""
        shard = self._known(chunk.shard)
        shard.arrived = max(shard.arrived, chunk.until)
        shard.begins = shard.begins or chunk.begins

    def arrived(self, keys: Collection[ShardKey]) -> datetime:
        """Return the latest arrival that was fetched of some shards."""
        return max((one.arrived for k in keys if (one := self._shards.get(k))), default=NOTHING)

    def observe(self, status: ShardStatus) -> None:
        """Learn how far a shard has been read."""
        key, shard = status.shard.key, self._known(status.shard.key)
        before = shard.until
        lag, is_at_tip = status.millis_behind_latest, status.millis_behind_latest == 0
        if status.progress.is_ended or (
            is_at_tip and (status.shard.is_closed or status.child_shards)
        ):
            # The answer that shows the end is at the tip, but the children have begun by then.
            shard.has_ended = status.progress.is_ended
            shard.until, shard.tip_until = shard.arrived, -math.inf
        else:
            seen = status.progress.as_of, status.progress.position.timestamp
            shard.until = max(before, *(one for one in seen if one is not None), NOTHING)
            # By the lag that the service tells: good enough to see that a gap is searched.
            shard.searched = status.read_until or shard.searched
            seconds = self._polled_tip_seconds if status.is_polled else _TIP_SECONDS
            # If a publisher never says that it is at the tip, its silence is waited for once.
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
        """Note that a shard is read no further."""
        self._known(key).is_finished = True
        self._hold(key, None)

    def follow(self, fetcher: KinesisDataFetcher) -> None:
        """Learn which shards are being read."""
        running = fetcher.statuses
        for one in running:
            key, shard = one.shard.key, self._known(one.shard.key)
            # Its ancestors, which are forgotten below, go out before it.
            shard.arrived = max(shard.arrived, self.arrived(fetcher.ancestors_of(key)))
            # Nothing is known of a shard before its first answer but where it begins.
            if shard.until == NOTHING:
                self.observe(one)
        keys = {one.shard.key for one in running}
        for key in self._shards.keys() - keys:
            # Unless it has ended, and what continues it may not be read yet.
            if fetcher.has_children_of_ended or not self._shards[key].has_ended:
                self._hold(key, None)
                del self._shards[key]

    @property
    def _limit(self) -> datetime:
        return EVERYTHING if self.until > EVERYTHING - _BOUND else self.until + _BOUND

    async def wait(self, key: ShardKey, pool: PendingPool) -> None:
        """Wait while a shard is ahead of the others, unless there is much room."""
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
        """Let those read on that may.

        Args:
            pool: what all shards share.
            is_stuck: says whether records wait of which none may be handed out.
        """
        if pool.filled < _ROOM_AHEAD:
            self._wake(EVERYTHING)
        left = _FAVOURED_AT_ONCE - len(self._favoured)
        if left <= 0 or not pool.waiter_count or not is_stuck():
            return
        # Until all that are furthest behind have answered, nothing gives its room back.
        waiting = pool.waiting
        last = [key for key, at in self._holding.items() if at == self.until and key in waiting]
        for key in sorted(last, key=str)[:left]:
            self._favoured.add(key)
            pool.favour(key)

    def look(self, fetcher: KinesisDataFetcher) -> None:
        """Learn what only time tells; called every second while records wait."""
        if not self.is_on:
            return
        # Who has not answered by now is not to hold up the others that need room.
        self._favoured.clear()
        self.follow(fetcher)
        for key, shard in self._shards.items():
            self._settle(key, shard)
        counting = self._holding.keys() | self.lost
        fronts = {
            key: Front(max(one.until, one.searched), is_idle=key not in counting)
            for key, one in self._shards.items()
        }
        # Who waits for the others, or for room, is not to blame.
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
        """Note what a micro-batch has: at least one record."""
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
            "The shards begin up to %.0f s apart. %s is the furthest behind, and the others wait "
            "for it.",
            distance.total_seconds(),
            begun[min(begun)],
        )
