"""Where a batch read begins and ends in each shard: pure rules over the configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from attrs import evolve, field, frozen

from kinesis_publishers.config import (
    EndingPositionConfig,
    InitialPositionConfig,
)
from kinesis_publishers.model import StartingPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesis_publishers.config import Properties
    from kinesis_publishers.model import Shard, ShardProgress

__all__ = ["BatchBounds", "Narrowing", "is_after"]

# How far arrival times may be out of order within a shard. Records are found by the service's own
# index of times; a record may bear another time than its neighbours.
_SLACK = timedelta(minutes=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Narrowing:
    """What a query does not need; ``None`` needs all.

    Attributes:
        stream_names: the streams that are needed.
        shard_ids: the shards that are needed.
        arrived_since: records that arrived earlier are not needed.
        arrived_until: records that arrived later are not needed.
    """

    stream_names: frozenset[str] | None = None
    shard_ids: frozenset[str] | None = None
    arrived_since: datetime | None = None
    arrived_until: datetime | None = None

    def needs_stream(self, name: str) -> bool:
        return self.stream_names is None or name in self.stream_names

    def needs_shard(self, shard: Shard) -> bool:
        return self.needs_stream(shard.stream_name) and (
            self.shard_ids is None or shard.shard_id in self.shard_ids
        )


@frozen(kw_only=True)
class BatchBounds:
    """Between which positions the records of a batch stand.

    Reading begins at the first position and ends before the second one: a batch that begins where
    another one ends goes on without a gap and without repeating a record.

    Attributes:
        start: where shards begin.
        until: before which position they end.
        shard_starts: the same as ``start`` for single shards, by shard id; ``None`` reads nothing.
        shard_untils: the same as ``until`` for single shards; ``None`` is the end of the shard.
        loaded_at: the instant that LATEST means, by this machine's clock.
    """

    start: StartingPosition
    until: StartingPosition
    shard_starts: Mapping[str, StartingPosition | None] = field(factory=dict)
    shard_untils: Mapping[str, StartingPosition | None] = field(factory=dict)
    loaded_at: datetime | None = field(default=None, eq=False)

    @classmethod
    def from_properties(cls, properties: Properties, *, loaded_at: datetime) -> Self:
        """Read the bounds; whether they can work is left to whoever asks for a batch.

        Args:
            properties: the configuration; without a starting position, reading begins at
                TRIM_HORIZON.
            loaded_at: the instant that LATEST means, and the latest possible end.
        """
        initial = InitialPositionConfig.from_properties(properties)
        ends = EndingPositionConfig.from_properties(properties)
        loaded_at = _next_millisecond(loaded_at)
        latest = StartingPosition.at_timestamp(loaded_at)
        return cls(
            start=_start(initial),
            until=_earlier(latest, ends.timestamp),
            shard_starts={name: _position(one, loaded_at) for name, one in initial.shards},
            # What has not arrived yet would be in one action and not in the one before it.
            shard_untils={
                shard_id: _if_any(_earlier, _position(one, loaded_at), loaded_at)
                for shard_id, one in ends.shards
            },
            loaded_at=loaded_at,
        )

    def corrected(self, properties: Properties, skew: timedelta) -> Self:
        """Return the bounds that ``properties`` mean by a clock that differs so much."""
        if self.loaded_at is None or not skew:
            return self
        return self.from_properties(properties, loaded_at=self.loaded_at + skew)

    @property
    def named_shards(self) -> frozenset[str]:
        """The ids of the shards that have positions of their own."""
        return frozenset((*self.shard_starts, *self.shard_untils))

    @property
    def listed_since(self) -> datetime | None:
        """The instant before which closed shards are of no interest; ``None`` if all are."""
        return None if self.named_shards else self.start.timestamp

    def start_of(self, shard_id: str) -> StartingPosition | None:
        """Return where a shard begins, ``None`` if nothing of it is read."""
        return self.shard_starts.get(shard_id, self.start)

    def until_of(self, shard_id: str) -> StartingPosition | None:
        """Return before which position a shard ends, ``None`` for its very end."""
        return self.shard_untils.get(shard_id, self.until)

    def narrowed(self, narrowing: Narrowing) -> BatchBounds:
        """Return bounds within these that hold every record that is needed.

        Arrival times are neither exact nor in order: a minute more is read on either side, and who
        needs exactly these times has to look at each record. Positions of single shards that are
        sequence numbers stay as they are.
        """
        lowest = _shifted(narrowing.arrived_since, -_SLACK)
        highest = _shifted(narrowing.arrived_until, _SLACK)
        return evolve(
            self,
            start=_later(self.start, lowest),
            until=_earlier(self.until, highest),
            shard_starts={
                shard_id: _if_any(_later, one, lowest)
                for shard_id, one in self.shard_starts.items()
            },
            shard_untils={
                shard_id: _if_any(_earlier, one, highest)
                for shard_id, one in self.shard_untils.items()
            },
        )

    def is_empty(self, shard_id: str) -> bool:
        """Say whether nothing of a shard is read, whatever it holds."""
        start, until = self.start_of(shard_id), self.until_of(shard_id)
        return start is None or (until is not None and not _is_before(start, until))


def _next_millisecond(instant: datetime) -> datetime:
    # Instants travel in milliseconds: what has arrived in this very one is to be among the rows.
    return instant + timedelta(microseconds=-instant.microsecond % 1000)


def _shifted(instant: datetime | None, by: timedelta) -> datetime | None:
    if instant is None:
        return None
    try:
        return max(_EPOCH, instant + by)
    except OverflowError:  # the first or the last day of all: no bound
        return None


def _if_any(
    move: Callable[[StartingPosition, datetime | None], StartingPosition],
    position: StartingPosition | None,
    instant: datetime | None,
) -> StartingPosition | None:
    return None if position is None else move(position, instant)


def _later(position: StartingPosition, instant: datetime | None) -> StartingPosition:
    if instant is None or position.sequence_number is not None:
        return position
    if position.timestamp is not None and position.timestamp >= instant:
        return position
    return StartingPosition.at_timestamp(instant)


def _earlier(position: StartingPosition, instant: datetime | None) -> StartingPosition:
    if instant is None or position.timestamp is None or position.timestamp <= instant:
        return position
    return StartingPosition.at_timestamp(instant)


def _start(config: InitialPositionConfig) -> StartingPosition:
    if config.timestamp is not None:
        return StartingPosition.at_timestamp(config.timestamp)
    return StartingPosition.trim_horizon()


def _position(progress: ShardProgress, latest: datetime) -> StartingPosition | None:
    return None if progress.is_ended else progress.position.pinned(latest)


def is_after(start: StartingPosition, until: StartingPosition) -> bool:
    """Say whether one is certainly later; a number and an instant cannot be compared."""
    if start.timestamp is not None and until.timestamp is not None:
        return start.timestamp > until.timestamp
    if start.sequence_number is not None and until.sequence_number is not None:
        return start.sequence_number > until.sequence_number
    return False


def _is_before(start: StartingPosition, until: StartingPosition) -> bool:
    """Say whether something may stand between the two."""
    if start.timestamp is not None and until.timestamp is not None:
        return start.timestamp < until.timestamp
    return start != until and not is_after(start, until)
