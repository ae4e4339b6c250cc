"""One uninterrupted stretch of looking for the ends of ranges, in a thread beside Spark's calls."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from kinesis_publishers.readers import FoundRanges, KinesisRangeFinder, ReadLimit
from kinesis_publishers_spark.event_loop import OpenInThread
from kinesis_publishers_spark.offsets import Offset, ShardOffset
from kinesis_publishers_spark.planning.chunks import needs_refresh
from kinesis_publishers_spark.planning.planner import Lag
from kinesis_publishers_spark.planning.session_planner import PlanningSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime

    from kinesis_publishers import Clock, Properties, ShardKey, StreamProgress

__all__ = ["RangeSession"]

# The end of a micro-batch, and how large the range of each shard is expected to be.
_Found: TypeAlias = "tuple[Offset, Mapping[ShardKey, int]]"

# How long AvailableNow waits between two looks that found nothing.
_PAUSE_SECONDS = 0.1
# How late a micro-batch may be that has no records, and says that a shard has ended.
_SETTLED_SECONDS = 1.0


class RangeSession(PlanningSession):
    """Keeps a :class:`~kinesis_publishers.readers.range_ends.KinesisRangeFinder` between triggers.

    Args:
        properties: the configuration.
        resume: how far the streams have been read; empty for a new query.
        clock: the source of time.
        catch_up_to: find what arrived before this instant (by this machine's clock), and end there
            (Trigger.AvailableNow).
    """

    def __init__(
        self,
        properties: Properties,
        resume: Mapping[str, StreamProgress],
        *,
        clock: Clock,
        catch_up_to: datetime | None = None,
    ) -> None:
        self._clock = clock
        self._catch_up_to = catch_up_to
        # The start for which there was nothing to write, and how long not to look again: Spark
        # asks a hundred times a second, and comparing many shards takes its time.
        self._settled_at: Offset | None = None
        self._settled_until = float("-inf")
        self._open = OpenInThread(_finder(properties, resume, clock), name="kinesis-ranges")
        self._begun = Offset.of(self._open.value.progress)

    @property
    def begun(self) -> Offset:
        """Where each shard begins."""
        return self._begun

    def plan(self, start: Offset, limit: ReadLimit | None) -> _Found:
        """Find where the micro-batch ends that begins at ``start``, and about how large it is.

        Args:
            start: itself the end if nothing is new; under AvailableNow, if everything is found.
            limit: the most that it may have; ``None`` for everything there is now (Trigger.Once).
        """
        return self._open.loop.start(self._plan(start, limit)).result()

    async def _plan(self, start: Offset, limit: ReadLimit | None) -> _Found:
        if limit is None:
            return self._batch(start, await self._open.value.find_tip())
        until = self._catch_up_to
        if until is not None:
            until += self._clock.skew
        found = await self._open.value.find(limit, until=until)
        while until is not None and not found and not self._open.value.is_caught_up(until):
            await self._clock.sleep(_PAUSE_SECONDS)
            found = await self._open.value.find(limit, until=until)
        if until is None and not found and self._is_settled(start):
            return start, {}
        return self._batch(start, found)

    def _is_settled(self, start: Offset) -> bool:
        return start is self._settled_at and self._clock.monotonic() < self._settled_until

    def _batch(self, start: Offset, found: FoundRanges) -> _Found:
        known = Offset.of(self._open.value.progress)
        if not found and not needs_refresh(start, known, self._clock.now()):
            self._settled_at = start
            self._settled_until = self._clock.monotonic() + _SETTLED_SECONDS
            return start, {}
        shards = {
            key: ShardOffset(
                progress=one.progress, first=found.ends[key].first if key in found.ends else None
            )
            for key, one in known.shards.items()
        }
        end = Offset(streams=known.streams, shards=shards)
        return end, {key: one.payload_bytes or 0 for key, one in found.ends.items()}

    def lag(self) -> Lag:
        """Return how far the source is behind."""
        behind = self._open.value.millis_behind_latest
        return Lag(millis_behind_latest={str(key): ms for key, ms in behind.items()})

    def close(self) -> None:
        """Stop looking and close the connections."""
        self._open.close()


@asynccontextmanager
async def _finder(
    properties: Properties, resume: Mapping[str, StreamProgress], clock: Clock
) -> AsyncIterator[KinesisRangeFinder]:
    async with KinesisRangeFinder.from_properties(properties, resume=resume, clock=clock) as finder:
        await finder.prepare()
        yield finder
