"""The progress of an application with one reader, which the next reader takes over."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from attrs import evolve

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.clock import Clock
from kinesis_publishers.errors import CheckpointError, ReaderReplacedError, StaleCheckpointError
from kinesis_publishers.events import CheckpointsRefused, CheckpointsSaved, EventSink, ignore_event
from kinesis_publishers.model import (
    FOUND_LATER,
    WHOLE_STREAM,
    Checkpoint,
    Shard,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
    StreamProgress,
)
from kinesis_publishers.progress.rows import (
    Identities,
    KeptProgress,
    Learn,
    Listing,
    OwnedRow,
    Progress,
    ProgressRows,
    Turn,
)

_LOGGER = logging.getLogger(__name__)

# More than enough: another reader writes once per interval.
_MOST_TRIES: Final = 10
# How long after a takeover the next reader must wait.
_CONTESTED_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 2.0
_LOOKS_UNTIL_SAID: Final = 30
# How often a reader that has taken over shows that it is alive.
_LIFE_SECONDS: Final = 5.0
# A contested owner writes its marks three times in that time.
_DEAD_LOOKS: Final = 8


class SingleReader(KeptProgress):
    """Writes the progress of the only reader of an application.

    The reader owns each stream by its mark, which it writes with every change. A reader whose mark
    was written by another one has been replaced.
    """

    def __init__(
        self, store: CheckpointStore, clock: Clock, events: EventSink = ignore_event
    ) -> None:
        self.rows = ProgressRows(store, clock)
        self._clock, self._events = clock, events
        self._removed: set[ShardKey] = set()
        self._owned: set[str] = set()
        # When streams were taken over from a reader that may still have been running.
        self._contested_at: float | None = None

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return the stored checkpoint of a shard; ``None`` if it was removed."""
        if (row := self.rows.stored.get(key)) is not None:
            return row.checkpoint.progress
        if key in self._removed:
            return None
        raise CheckpointError(
            f"{key} has no checkpoint: it is not a shard of the streams that are read, or progress "
            "is recorded before the shard was found."
        )

    async def take_over(self, identities: Identities) -> dict[str, StreamProgress]:
        """Take streams (by ARN) over from their former reader, which is then refused.

        If that reader has itself taken them over recently, this waits until it has stopped:
        otherwise two readers that are restarted would stop each other endlessly.
        """
        self.rows.name_streams(identities)
        await self._load_new()

        async def take(arn: str) -> None:
            # Other readers that have waited must wait for the one that reads now.
            if await self._wait_for_owner(arn) or _owner(self.rows.mark(arn)):
                self._contested_at = self._clock.monotonic()
            if await self.rows.save(self._new_marks([arn])):
                self._owned.add(arn)

        # In one order, one by one: of several readers that have waited, one gets all streams.
        taken = [arn for arn in sorted(identities) if arn not in self._owned]
        for arn in taken:
            await self._repeat(partial(take, arn), lambda _: self._load_new())
        if any(map(self.rows.mark, taken)):
            # Until it was refused, the former reader may have committed a transaction.
            found = await self.rows.fetch()
            self.rows.replace(
                found, lambda key: key.stream_arn in taken and key.shard_id != WHOLE_STREAM
            )
        return self.rows.resumable()

    async def _load_new(self) -> None:
        # What another reader has written of a stream that is read already must refuse this one.
        found = await self.rows.fetch()
        self.rows.replace(found, lambda key: key.stream_arn not in self._owned)

    async def _wait_for_owner(self, arn: str) -> bool:
        owner = _owner(self.rows.mark(arn))
        if owner is None or owner.checkpoint.progress.as_of is None:
            return False
        looks = unchanged = 0
        # Looks are counted: while the store is down, an owner that is alive cannot write either.
        while owner is not None and unchanged < _DEAD_LOOKS:
            if looks % _LOOKS_UNTIL_SAID == 0:
                _LOGGER.warning(
                    "Another reader of the application, %s, has taken over %s recently: "
                    "this one waits until that one has stopped.",
                    owner.version.writer,
                    arn,
                )
            looks += 1
            await self._clock.sleep(_LOOK_SECONDS)
            await self._load_new()
            seen, owner = owner, _owner(self.rows.mark(arn))
            unchanged = unchanged + 1 if owner == seen else 0
        return True

    async def keep(self, turn: Turn) -> None:
        while True:
            await self._clock.sleep(_LIFE_SECONDS)
            async with turn():
                if self._contested_at is not None:
                    await self._save(self._new_marks(self._owned))

    async def close(self) -> None:
        async with self.rows.turn:
            await self._save(self._new_marks(self._owned, is_ended=True))

    def _new_marks(self, arns: Iterable[str], *, is_ended: bool = False) -> list[Checkpoint]:
        now, since = self._clock.monotonic(), self._contested_at
        is_contested = since is not None and now - since < _CONTESTED_SECONDS and not is_ended
        as_of = self._clock.now() if is_contested else None
        progress = evolve(FOUND_LATER, as_of=as_of, is_ended=is_ended)
        known = [mark.checkpoint for mark in map(self.rows.mark, arns) if mark is not None]
        return [evolve(checkpoint, progress=progress) for checkpoint in known]

    async def follow(self, identities: Identities, listed: Listing, progress: Progress) -> None:
        self.rows.identities = dict(identities)
        if dropped := self._owned - identities.keys():
            await self._save(self._new_marks(dropped, is_ended=True))
            self._owned -= dropped
        new = [
            shard for key, shard in listed.items() if key in progress and not self._is_begun(key)
        ]
        # A shard that is not listed and has not ended is newer than the listing.
        kept = listed.keys() | {key for key, one in progress.items() if not one.is_ended}
        stored = [key for key in self.rows.stored if key.stream_arn in identities]
        gone = [key for key in stored if key not in kept and key.shard_id != WHOLE_STREAM]
        if new or gone:
            # A reader that was replaced must not change anything.
            await self._save(self._new_marks(self._owned))

        def first_row(shard: Shard) -> Checkpoint:
            key, created_at = shard.key, identities[shard.stream_arn].created_at
            return Checkpoint(shard=key, stream_created_at=created_at, progress=progress[key])

        await self.rows.create(new, first_row, self._is_begun, self._save)
        self._owned |= identities.keys()
        if gone:
            remove = partial(self.rows.remove, gone)
            await self._repeat(remove, partial(self.learn, gone))
            self._removed.update(gone)

    def _is_begun(self, key: ShardKey) -> bool:
        # A stream that was created again has shards of the same ids. One without a mark is begun
        # from the beginning.
        created_at = self.rows.identities[key.stream_arn].created_at
        rows = self.rows.mark(key.stream_arn), self.rows.stored.get(key)
        return all(row and row.checkpoint.stream_created_at == created_at for row in rows)

    def row_with(self, key: ShardKey, progress: ShardProgress) -> OwnedRow:
        row = evolve(self.rows.stored[key].checkpoint, progress=progress)
        return row, ShardKey(key.stream_arn, WHOLE_STREAM)

    async def write(self, progress: Progress) -> None:
        stored = self.rows.stored
        rows = [(stored[key].checkpoint, one) for key, one in progress.items() if key in stored]
        new = [evolve(row, progress=one) for row, one in rows if row.progress != one]
        # With the marks, which refuse a reader that was replaced.
        await self._save([*self._new_marks({one.shard.stream_arn for one in new}), *new])

    async def _save(self, rows: Sequence[Checkpoint]) -> None:
        async def save() -> None:
            began_at = self._clock.monotonic()
            await self.rows.save(rows)
            if shards := sum(one.shard.shard_id != WHOLE_STREAM for one in rows):
                seconds = self._clock.monotonic() - began_at
                self._events(CheckpointsSaved(shards=shards, seconds=seconds))

        await self._repeat(save, partial(self.learn, [one.shard for one in rows]))

    async def _repeat(self, change: Callable[[], Awaitable[None]], learn: Learn) -> None:
        """Write as the owner, also over what another reader has written."""
        for tries_left in reversed(range(_MOST_TRIES)):
            try:
                return await change()
            except StaleCheckpointError as refused:
                self._events(CheckpointsRefused(message=str(refused)))
                if not tries_left:
                    raise
                await learn(refused)
        return None

    async def learn(self, keys: Collection[ShardKey], refused: StaleCheckpointError) -> None:
        found = await self.rows.fetch()
        for arn in {key.stream_arn for key in keys}:
            known, owner = self.rows.mark(arn), found.get(ShardKey(arn, WHOLE_STREAM))
            writer = owner and owner.version.writer
            if owner and (known is None or known.version.writer != writer):
                raise ReaderReplacedError(
                    f"Another reader of this kinesis.checkpoint.application, {writer}, has taken "
                    f"over {arn}, and this one has stopped. Nothing is lost: what was processed "
                    "here since the last checkpoint comes again there. Do not restart this one "
                    "while the other one runs: it would wait for that."
                ) from refused
            if known and not owner:
                raise refused
        # Of these alone: what else another reader has written must refuse the writes over it.
        self.rows.replace(found, keys.__contains__)


def _owner(mark: StoredCheckpoint | None) -> StoredCheckpoint | None:
    """Return the mark of a stream whose owner has not noted that it has stopped."""
    return None if mark is None or mark.checkpoint.progress.is_ended else mark
