"""The rows of an application as one worker sees them: it creates them and removes them, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final

from attrs import define, field

from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.lineage import gone_shards
from kinesis_publishers.errors import StaleCheckpointError
from kinesis_publishers.leases.rules import Rows, Sightings, lease_of
from kinesis_publishers.model import (
    FOUND_LATER,
    Checkpoint,
    HashRange,
    Lease,
    Shard,
    ShardKey,
    ShardProgress,
)
from kinesis_publishers.progress.rows import Listing, Progress, ProgressRows

# Of a failover time: longer than two looks are apart while the store answers.
_LONGEST_GAP: Final = 0.5


def first_row(shard: Shard, stream_created_at: datetime, progress: ShardProgress) -> Checkpoint:
    """Return the row of a shard that has not been read."""
    lease = Lease(parents=parents_of(shard), hash_range=HashRange.of(shard))
    return Checkpoint(
        shard=shard.key, stream_created_at=stream_created_at, progress=progress, lease=lease
    )


def parents_of(shard: Shard) -> tuple[str, ...]:
    return tuple(key.shard_id for key in shard.parent_keys)


@define(eq=False)
class LeaseRows:
    """The rows, and how long each of them has been unchanged.

    Every worker creates rows and removes them: the first one wins, and the others find that.

    Attributes:
        listed: the shards of the last listing.
        removed: the positions of shards whose rows were removed while this worker had them.
        on_loaded: is called after each load, with the rows that were known before.
    """

    progress: ProgressRows
    _clock: Clock
    _failover_seconds: float
    sightings: Sightings = field(init=False)
    removed: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    on_loaded: Callable[[Rows], None] = field(default=lambda _: None, init=False)
    listed: dict[ShardKey, Shard] = field(factory=dict, init=False)
    # The shards that have left the retention unread, as was reported.
    _lost: set[ShardKey] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.sightings = Sightings(_LONGEST_GAP * self._failover_seconds)
        self.progress.on_loaded = self._note_loaded

    def ages(self) -> dict[ShardKey, float]:
        return self.sightings.ages(self._clock.monotonic())

    def _note_loaded(self, before: Rows) -> None:
        # Noted after the answer: a lease never seems older than it is.
        self.sightings.note(self.progress.stored, self._clock.monotonic())
        for key in self.removed.keys() & self.progress.stored.keys():
            del self.removed[key]
        self.on_loaded(before)

    async def save(self, rows: Iterable[Checkpoint]) -> set[ShardKey]:
        """Write rows on the versions that this worker knows; return what was written.

        After a refusal the rows are loaded again.
        """
        try:
            return await self.progress.save(rows)
        except StaleCheckpointError as refused:
            await self.progress.load()
            return {*refused.written}

    async def follow(self, listed: Listing, progress: Progress) -> None:
        """Create what is missing of ``progress``; remove what is gone and not needed."""
        self.listed = dict(listed)
        new = [
            shard for key, shard in listed.items() if key in progress and not self._is_begun(key)
        ]

        def begun_row(shard: Shard) -> Checkpoint:
            found = self.removed.get(shard.key) or progress[shard.key]
            return self.first_row(shard, self._beginning(shard, found))

        await self.progress.create(new, begun_row, self._is_begun, self.save)
        # Once the loss of a shard has been reported, it is no longer in ``progress``.
        gone = self._read_and_gone() | self._lost_unread(progress)
        # Otherwise another worker has removed or changed them: the next look tells.
        with suppress(StaleCheckpointError):
            await self.progress.remove(gone - self._newer_than_listing())

    async def create_children(self, children: Iterable[Shard]) -> None:
        """Create the rows of shards that continue others.

        One whose other parent has no row is left to a listing: by that parent's child, the parent
        would be taken for one that was read to its end.
        """
        stored = self.progress.stored
        new = [
            one for one in children if one.key not in stored and stored.keys() >= {*one.parent_keys}
        ]
        await self.save([self.first_row(one) for one in new])

    def first_row(self, shard: Shard, progress: ShardProgress = FOUND_LATER) -> Checkpoint:
        """Return the row of a shard of the streams that are read."""
        created_at = self.progress.identities[shard.stream_arn].created_at
        return first_row(shard, created_at, progress)

    def _is_begun(self, key: ShardKey) -> bool:
        row = self.progress.stored.get(key)
        # A stream that was created again has shards of the same ids.
        created_at = self.progress.identities[key.stream_arn].created_at
        # If it is newer, another worker has noticed that before this one.
        return row is not None and row.checkpoint.stream_created_at >= created_at

    def _beginning(self, shard: Shard, found: ShardProgress) -> ShardProgress:
        """Return where a shard begins: with the others, if the application has only just begun.

        Of workers that begin a new application at once, one may see a part of the first rows that
        another one creates: the rest was not found later. If all of them stand at an instant, and
        none has ended, the application wants nothing from before.
        """
        if found != FOUND_LATER:
            return found
        rows, arn = self.progress.current().items(), shard.stream_arn
        of_stream = (row.checkpoint.progress for key, row in rows if key.stream_arn == arn)
        instants = {None if one.is_ended else one.position.timestamp: one for one in of_stream}
        known = [one for one in instants if one is not None]
        has_just_begun = known and None not in instants
        return instants[min(known)] if has_just_begun else found

    def _newer_than_listing(self) -> set[ShardKey]:
        """Return the shards that descend from listed ones: what has left, left after its parents.

        Their ids do not tell: the listing is completed by children that last answers have named.
        """
        newer: set[ShardKey] = set()
        for key, row in sorted(self.progress.current().items(), key=lambda one: one[0].shard_id):
            parents = {ShardKey(key.stream_arn, one) for one in lease_of(row).parents}
            if any(one in newer or one in self.listed for one in parents):
                newer.add(key)
        return newer

    def _read_and_gone(self) -> set[ShardKey]:
        """Return the ended shards that are no longer listed, and all of whose children have begun.

        Until then their rows say that a child may start, and that it was not read before.
        """
        rows = self.progress.current()
        begun: set[ShardKey] = set()
        waiting: set[ShardKey] = set()
        for key, row in rows.items():
            progress = row.checkpoint.progress
            is_begun = progress.is_ended or progress.processed is not None
            parents = (ShardKey(key.stream_arn, one) for one in lease_of(row).parents)
            (begun if is_begun else waiting).update(parents)
        gone = (begun - waiting) & rows.keys() - self.listed.keys()
        return {key for key in gone if rows[key].checkpoint.progress.is_ended}

    def _lost_unread(self, progress: Progress) -> set[ShardKey]:
        rows, now = self.progress.current(), self._clock.monotonic()
        ages = {} if self.sightings.is_gap(now) else self.sightings.ages(now)
        gone = {
            key
            for arn in self.progress.identities
            for key in gone_shards(
                [key for key in rows if key.stream_arn == arn],
                [one for one in self.listed.values() if one.stream_arn == arn],
            )
            if not rows[key].checkpoint.progress.is_ended
        }
        reported = {key for key in gone if key not in progress or progress[key].is_ended}
        # Until it is removed, a row is known progress again.
        self._lost = gone & (self._lost | reported)
        return {
            key
            for key in self._lost
            # One that a live worker still has is its to end.
            if lease_of(rows[key]).owner is None or ages.get(key, 0.0) >= self._failover_seconds
        }
