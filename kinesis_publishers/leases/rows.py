"""The rows of an application in its store: loaded, and written on the versions that are known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from attrs import Factory, define, field

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.clock import Clock
from kinesis_publishers.config import LeaseConfig
from kinesis_publishers.engine.lineage import generations, gone_shards
from kinesis_publishers.errors import ConnectionFailedError, StaleCheckpointError
from kinesis_publishers.leases.rules import Rows, Sightings, lease_of
from kinesis_publishers.model import (
    FOUND_LATER,
    WHOLE_STREAM,
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    HashRange,
    Lease,
    Shard,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
    StreamIdentity,
)
from kinesis_publishers.progress.single_reader import asking

# Of a failover time: a call that takes longer is given up, and made again.
_CALL_PART: Final = 1 / 3
# Longer than two looks are apart while the store answers.
_LONGEST_GAP: Final = 0.5


def first_row(shard: Shard, stream_created_at: datetime, progress: ShardProgress) -> Checkpoint:
    """Return the row of a shard that has not been read."""
    parents = tuple(key.shard_id for key in shard.parent_keys)
    return Checkpoint(
        shard=shard.key,
        stream_created_at=stream_created_at,
        progress=progress,
        lease=Lease(parents=parents, hash_range=HashRange.of(shard)),
    )


@define(eq=False)
class LeaseRows:
    """What one worker knows of the rows; a subclass holds leases. One call at a time.

    The store is open, and nothing else in this process writes to it.
    """

    _store: CheckpointStore
    _config: LeaseConfig
    _clock: Clock
    rows: dict[ShardKey, StoredCheckpoint] = field(factory=dict, init=False)
    _identities: dict[str, StreamIdentity] = field(factory=dict, init=False)
    _listed: dict[ShardKey, Shard] = field(factory=dict, init=False)
    # The positions of shards whose rows were removed while this worker had them.
    _removed: dict[ShardKey, ShardProgress] = field(factory=dict, init=False)
    # The shards that have left the retention unread, as was reported.
    _lost: set[ShardKey] = field(factory=set, init=False)
    _sightings: Sightings = field(
        init=False,
        default=Factory(
            lambda self: Sightings(_LONGEST_GAP * self._config.failover_seconds), takes_self=True
        ),
    )

    @property
    def _may_lose(self) -> bool:
        """Whether a call that takes long may cost this worker a lease."""
        return False

    def _note_loaded(self, before: Rows) -> None:
        """Learn that :attr:`rows` was loaded, and what it was before."""

    def _note_written(self, keys: Iterable[ShardKey], sent_at: float) -> None:
        """Learn that rows were written, by a call that was sent at ``sent_at``, as they are now."""

    async def _load(self) -> None:
        async with self._limited("load"):
            rows = await self._store.load()
        self._learn(rows)

    def _learn(self, rows: Rows) -> None:
        # Later than what was written: a lease never seems older than it is.
        self._sightings.note(rows, self._clock.monotonic())
        before, self.rows = self.rows, dict(rows)
        self._removed = {key: one for key, one in self._removed.items() if key not in rows}
        self._note_loaded(before)

    @asynccontextmanager
    async def _limited(self, verb: str) -> AsyncIterator[None]:
        """Give a call up that takes so long that leases may end.

        Raises:
            ConnectionFailedError: it has taken too long, or the store does not answer.
        """
        if not self._may_lose:
            # At the start the store has its own patience.
            with asking(self._store, verb):
                yield
            return
        seconds = _CALL_PART * self._config.failover_seconds
        try:
            async with self._clock.timeout(seconds) as limit:
                with asking(self._store, verb):
                    yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ConnectionFailedError(
                f"{self._store} has not answered in {seconds:g} seconds",
                operation=verb,
                code="timeout",
            ) from error

    async def _save(self, rows: Sequence[Checkpoint]) -> set[ShardKey]:
        """Write rows on the versions that this worker knows; return what was written.

        After a refusal the rows are loaded again.
        """
        if not rows:
            return set()
        writes = [CheckpointWrite.over(self.rows, row) for row in rows]
        sent_at = self._clock.monotonic()
        try:
            async with self._limited("write"):
                versions = await self._store.save(writes)
        except StaleCheckpointError as refused:
            self._learn_written(rows, refused.written, sent_at)
            await self._load()
            return set(refused.written)
        self._learn_written(rows, versions, sent_at)
        return set(versions)

    def _learn_written(
        self,
        rows: Sequence[Checkpoint],
        versions: Mapping[ShardKey, CheckpointVersion],
        sent_at: float,
    ) -> None:
        self.rows |= {
            row.shard: StoredCheckpoint(checkpoint=row, version=versions[row.shard])
            for row in rows
            if row.shard in versions
        }
        self._note_written(versions, sent_at)

    def _current_rows(self) -> dict[ShardKey, StoredCheckpoint]:
        """Return the rows of shards of the streams that are read, as they exist now."""
        created = {arn: one.created_at for arn, one in self._identities.items()}
        return {
            key: row
            for key, row in self.rows.items()
            if key.shard_id != WHOLE_STREAM
            and row.checkpoint.stream_created_at == created.get(key.stream_arn)
        }

    def _is_begun(self, key: ShardKey) -> bool:
        row = self.rows.get(key)
        # A stream that was created again has shards of the same ids.
        created_at = self._identities[key.stream_arn].created_at
        # If it is newer, another worker has noticed that before this one.
        return row is not None and row.checkpoint.stream_created_at >= created_at

    def _first_row(self, shard: Shard, progress: ShardProgress = FOUND_LATER) -> Checkpoint:
        return first_row(shard, self._identities[shard.stream_arn].created_at, progress)

    async def _create_missing(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Create the rows of listed shards; the first worker to create one wins."""
        new = [
            shard
            for key, shard in self._listed.items()
            if key in progress and not self._is_begun(key)
        ]
        for generation in generations(new):
            # Another worker may have created them since: a refusal loads the rows.
            missing = [one for one in generation if not self._is_begun(one.key)]
            known = {**progress, **self._removed}
            rows = [self._first_row(one, self._beginning(one, known[one.key])) for one in missing]
            await self._save(rows)
        # Last of all: they say that the first row of every shard is there.
        marks = [
            Checkpoint.mark(arn, identity.created_at) for arn, identity in self._identities.items()
        ]
        await self._save([mark for mark in marks if not self._is_begun(mark.shard)])

    def _beginning(self, shard: Shard, found: ShardProgress) -> ShardProgress:
        """Return where a shard begins: with the others, if the application has only just begun.

        Of workers that begin a new application at once, one may see a part of the first rows that
        another one creates: the rest was not found later. If all of them stand at an instant, and
        none has ended, the application wants nothing from before.
        """
        if found != FOUND_LATER:
            return found
        of_stream = (
            row.checkpoint.progress
            for key, row in self._current_rows().items()
            if key.stream_arn == shard.stream_arn
        )
        instants = {None if one.is_ended else one.position.timestamp: one for one in of_stream}
        known = [one for one in instants if one is not None]
        has_just_begun = known and None not in instants
        return instants[min(known)] if has_just_begun else found

    async def _remove_gone(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Remove the rows of shards that have left the listing, once they are not needed.

        Those of ended shards are needed until all of their children have begun: they say that a
        child may start, and that it was not read before. Those of shards that have left unread go
        once the loss has been reported, which takes them out of ``progress``.
        """
        newer = self._newer_than_listing()
        candidates = self._read_and_gone() | self._lost_unread(progress)
        gone = {key: version for key, version in candidates.items() if key not in newer}
        if not gone:
            return
        try:
            async with self._limited("remove"):
                await self._store.remove(gone)
        except StaleCheckpointError:
            # Another worker has removed or changed them: the next look tells.
            return
        for key in gone:
            del self.rows[key]

    def _newer_than_listing(self) -> set[ShardKey]:
        """Return the shards that descend from listed ones: what has left, left after its parents.

        Their ids do not tell: the listing is completed by children that last answers have named.
        """
        newer: set[ShardKey] = set()
        for key, row in sorted(self._current_rows().items(), key=lambda one: one[0].shard_id):
            parents = {ShardKey(key.stream_arn, one) for one in lease_of(row).parents}
            if any(one in newer or one in self._listed for one in parents):
                newer.add(key)
        return newer

    def _read_and_gone(self) -> dict[ShardKey, CheckpointVersion]:
        rows = self._current_rows()
        begun: set[ShardKey] = set()
        waiting: set[ShardKey] = set()
        for key, row in rows.items():
            progress = row.checkpoint.progress
            is_begun = progress.is_ended or progress.processed is not None
            parents = (ShardKey(key.stream_arn, one) for one in lease_of(row).parents)
            (begun if is_begun else waiting).update(parents)
        return {
            key: row.version
            for key, row in rows.items()
            if key not in self._listed
            and row.checkpoint.progress.is_ended
            and key in begun - waiting
        }

    def _lost_unread(
        self, progress: Mapping[ShardKey, ShardProgress]
    ) -> dict[ShardKey, CheckpointVersion]:
        rows, now = self._current_rows(), self._clock.monotonic()
        ages = {} if self._sightings.is_gap(now) else self._sightings.ages(now)
        gone = {
            key
            for arn in self._identities
            for key in gone_shards(
                [key for key in rows if key.stream_arn == arn],
                [one for one in self._listed.values() if one.stream_arn == arn],
            )
            if not rows[key].checkpoint.progress.is_ended
        }
        reported = {key for key in gone if key not in progress or progress[key].is_ended}
        # Until it is removed, a row is known progress again.
        self._lost = gone & (self._lost | reported)
        return {
            key: rows[key].version
            for key in self._lost
            # One that a live worker still has is its to end.
            if lease_of(rows[key]).owner is None
            or ages.get(key, 0.0) >= self._config.failover_seconds
        }
