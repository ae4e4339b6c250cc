"""What a store of checkpoints holds for the streams that are read, and the changes to it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from attrs import define, evolve, field

from kinesis_publishers.abc import CheckpointStore
from kinesis_publishers.clock import Clock
from kinesis_publishers.engine.lineage import generations
from kinesis_publishers.errors import (
    CheckpointError,
    KinesisPublishersError,
    ReaderReplacedError,
    StaleCheckpointError,
)
from kinesis_publishers.events import CheckpointsRefused, CheckpointsSaved, EventSink, ignore_event
from kinesis_publishers.model import (
    FOUND_LATER,
    WHOLE_STREAM,
    Checkpoint,
    CheckpointWrite,
    Shard,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.model.sources import stream_name_of

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


Turn: TypeAlias = "Callable[[], AbstractAsyncContextManager[None]]"
"""Lets nothing else call the store while its context is open."""


@define(eq=False)
class StoredProgress:
    """The checkpoints of one application, each with the version that this reader knows.

    Nothing else in this process writes to the store, which is open.
    """

    _store: CheckpointStore
    _clock: Clock
    _events: EventSink = ignore_event
    _stored: dict[ShardKey, StoredCheckpoint] = field(factory=dict, init=False)
    # When each stream was created whose first checkpoint is complete, by ARN.
    _begun: dict[str, datetime] = field(factory=dict, init=False)
    _removed: set[ShardKey] = field(factory=set, init=False)
    _owned: set[str] = field(factory=set, init=False)
    # When streams were taken over from a reader that may still have been running.
    _contested_at: float | None = field(default=None, init=False)

    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard, ``None`` if its checkpoint has been removed.

        Raises:
            CheckpointError: the shard was never begun.
        """
        if key in self._stored:
            return self._stored[key].checkpoint.progress
        if key in self._removed:
            return None
        raise CheckpointError(
            f"{key} has no checkpoint: it is not a shard of the streams that are read, or progress "
            "is recorded before the shard was found."
        )

    async def load(self) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN), as a fetcher's ``resume`` takes it."""
        with self._asking("load"):
            self._stored = dict(await self._store.load())
        resume = resumable_streams(self._stored)
        self._begun = {arn: one.identity.created_at for arn, one in resume.items()}
        return resume

    async def take_over(
        self, identities: Mapping[str, StreamIdentity]
    ) -> dict[str, StreamProgress]:
        """Take streams (by ARN) over from their former reader, which is then refused.

        If that reader has itself taken them over recently, this waits until it has stopped:
        otherwise two readers that are restarted would stop each other endlessly.
        """

        self._store.name_streams(tuple(identities.values()))
        await self.load()
        # In one order, one by one: of several readers that have waited, one gets all streams.
        for arn in sorted(identities):
            await self._repeat(partial(self._take, arn), lambda _: self.load())
        return resumable_streams(self._stored)

    async def _take(self, arn: str) -> None:
        # Other readers that have waited must wait for the one that reads now.
        if await self._wait_for_owner(arn) or self._owner(arn):
            self._contested_at = self._clock.monotonic()
        if marks := self._new_marks([arn]):
            await self._save_once(marks)
            self._owned.add(arn)

    async def _wait_for_owner(self, arn: str) -> bool:
        owner = self._owner(arn)
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
            await self.load()
            seen, owner = owner, self._owner(arn)
            unchanged = unchanged + 1 if owner == seen else 0
        return True

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        """Say whether work goes on after a write has failed: no, another reader may begin."""
        return False

    async def keep(self, turn: Turn) -> None:
        """Show that the owner of contested streams is alive, until cancelled."""
        while True:
            await self._clock.sleep(_LIFE_SECONDS)
            async with turn():
                if self._contested_at is not None:
                    await self.mark()

    async def close(self) -> None:
        """Note that this reader has stopped, so that the next one need not wait for it."""
        await self.mark(is_ended=True)

    async def mark(self, *, is_ended: bool = False) -> None:
        """Write as the owner of the streams, or note that it has stopped."""
        await self._save(self._new_marks(self._owned, is_ended=is_ended))

    def _new_marks(self, arns: Iterable[str], *, is_ended: bool = False) -> list[Checkpoint]:
        now, since = self._clock.monotonic(), self._contested_at
        is_contested = since is not None and now - since < _CONTESTED_SECONDS and not is_ended
        as_of = self._clock.now() if is_contested else None
        progress = evolve(FOUND_LATER, as_of=as_of, is_ended=is_ended)
        keys = [ShardKey(arn, WHOLE_STREAM) for arn in arns]
        known = [self._stored[key].checkpoint for key in keys if key in self._stored]
        return [evolve(checkpoint, progress=progress) for checkpoint in known]

    def _owner(self, arn: str) -> StoredCheckpoint | None:
        """Return the mark of a stream whose owner has not noted that it has stopped."""
        mark = self._stored.get(ShardKey(arn, WHOLE_STREAM))
        return None if mark is None or mark.checkpoint.progress.is_ended else mark

    async def follow(
        self,
        identities: Mapping[str, StreamIdentity],
        listed: Mapping[ShardKey, Shard],
        progress: Mapping[ShardKey, ShardProgress],
    ) -> None:
        """Write and remove checkpoints as :meth:`Checkpointer.follow` says."""
        new = [
            shard
            for key, shard in listed.items()
            if key in progress and not self._is_begun(key, identities[key.stream_arn])
        ]
        gone = [
            key
            for key in self._stored
            if key.stream_arn in identities
            and key not in listed
            and key.shard_id != WHOLE_STREAM
            # One that has not ended is newer than the listing.
            and (key not in progress or progress[key].is_ended)
        ]
        if new or gone:
            # A reader that was replaced must not change anything.
            await self.mark()
        # Batches need not be atomic, and a child without its parent would look as if the parent had
        # been read to its end.
        for generation in generations(new):
            await self._begin({shard.key: progress[shard.key] for shard in generation}, identities)
        # Last of all: an interrupted first checkpoint is written again from the beginning.
        streams = {ShardKey(arn, WHOLE_STREAM): identity for arn, identity in identities.items()}
        begun = {key for key, identity in streams.items() if self._is_begun(key, identity)}
        await self._begin(dict.fromkeys(streams.keys() - begun, FOUND_LATER), identities)
        self._begun |= {arn: identity.created_at for arn, identity in identities.items()}
        self._owned |= identities.keys()
        await self._remove(gone)

    def note_age(self, key: ShardKey, progress: ShardProgress) -> None:
        """Do nothing: it would need a separate write."""

    async def write(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Write the new progress of shards that have a checkpoint."""
        known = {key: self._stored[key].checkpoint for key in progress if key in self._stored}
        new = [
            evolve(checkpoint, progress=progress[key])
            for key, checkpoint in known.items()
            if checkpoint.progress != progress[key]
        ]
        # With the marks, which refuse a reader that was replaced.
        await self._save([*self._new_marks({one.shard.stream_arn for one in new}), *new])

    def _is_begun(self, key: ShardKey, identity: StreamIdentity) -> bool:
        stored = self._stored.get(key)
        # A stream that was created again has shards of the same ids.
        return (
            self._begun.get(identity.arn) == identity.created_at
            and stored is not None
            and stored.checkpoint.stream_created_at == identity.created_at
        )

    async def _begin(
        self, progress: Mapping[ShardKey, ShardProgress], identities: Mapping[str, StreamIdentity]
    ) -> None:
        self._removed -= progress.keys()
        await self._save(
            Checkpoint(
                shard=key, stream_created_at=identities[key.stream_arn].created_at, progress=one
            )
            for key, one in progress.items()
        )

    async def _save(self, checkpoints: Iterable[Checkpoint]) -> None:
        written = list(checkpoints)
        await self._change([one.shard for one in written], lambda: self._save_once(written))

    async def _change(
        self, keys: Collection[ShardKey], change: Callable[[], Awaitable[None]]
    ) -> None:
        """Write as the owner, also over what another reader has written."""
        await self._repeat(change, partial(self._learn_versions, keys))

    async def _repeat(
        self,
        change: Callable[[], Awaitable[None]],
        learn: Callable[[StaleCheckpointError], Awaitable[object]],
    ) -> None:
        for _ in range(_MOST_TRIES - 1):
            try:
                return await change()
            except StaleCheckpointError as refused:
                await learn(refused)
        return await change()

    async def _learn_versions(
        self, keys: Collection[ShardKey], refused: StaleCheckpointError
    ) -> None:
        with self._asking("load"):
            found = await self._store.load()
        for mark in {ShardKey(key.stream_arn, WHOLE_STREAM) for key in keys}:
            known, owner = self._stored.get(mark), found.get(mark)
            if owner and (known is None or known.version.writer != owner.version.writer):
                raise _replaced(owner) from refused
            if known and not owner:
                raise refused
        for key in keys:
            self._stored.pop(key, None)
        self._stored |= {key: found[key] for key in keys if key in found}

    async def _save_once(self, checkpoints: Iterable[Checkpoint]) -> None:
        writes = [CheckpointWrite.over(self._stored, one) for one in checkpoints]
        if not writes:
            return
        began_at = self._clock.monotonic()
        with self._asking("write"):
            versions = await self._store.save(writes)
            if left_out := [str(one.shard) for one in writes if one.shard not in versions]:
                raise CheckpointError(
                    f"{type(self._store).__name__}.save returned no version for "
                    f"{', '.join(left_out):.500}: it has to return one for each write."
                )
        for write in writes:
            self._stored[write.shard] = StoredCheckpoint(
                checkpoint=write.checkpoint, version=versions[write.shard]
            )
        if shards := sum(one.shard.shard_id != WHOLE_STREAM for one in writes):
            seconds = self._clock.monotonic() - began_at
            self._events(CheckpointsSaved(shards=shards, seconds=seconds))

    async def _remove(self, keys: Collection[ShardKey]) -> None:
        async def remove() -> None:
            known = {key: self._stored[key].version for key in keys if key in self._stored}
            with self._asking("remove"):
                await self._store.remove(known)

        if not keys:
            return
        await self._change(keys, remove)
        for key in keys:
            self._stored.pop(key, None)
        self._removed.update(keys)

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        try:
            with asking(self._store, verb):
                yield
        except StaleCheckpointError as error:
            self._events(CheckpointsRefused(message=str(error)))
            raise


@contextmanager
def asking(store: CheckpointStore, verb: str) -> Iterator[None]:
    """Say of every failure of a store which call it was; what a plugin raises is wrapped.

    Raises:
        KinesisPublishersError: the store's own.
        CheckpointError: the store has raised something else.
    """
    try:
        yield
    except KinesisPublishersError as error:
        error.add_note(f"The call was to {verb} checkpoints in {store}.")
        raise
    except Exception as error:  # a plugin may raise anything
        raise CheckpointError(
            f"The store of checkpoints {type(store).__name__} failed to {verb} them: "
            f"{type(error).__name__}: {error}. Look into the store; what was processed since "
            "the last checkpoint is repeated by the next reader."
        ) from error


def _replaced(owner: StoredCheckpoint) -> ReaderReplacedError:
    return ReaderReplacedError(
        f"Another reader of this kinesis.checkpoint.application, {owner.version.writer}, has taken "
        f"over {owner.checkpoint.shard.stream_arn}, and this one has stopped. Nothing is lost: "
        "what was processed here since the last checkpoint comes again there. Do not restart this "
        "one while the other one runs: it would wait for that."
    )


def resumable_streams(stored: Mapping[ShardKey, StoredCheckpoint]) -> dict[str, StreamProgress]:
    """Return the streams that resume from their checkpoints, by ARN.

    A stream is not among them without the mark that its first checkpoint is complete: nothing has
    been read then, and shards without a checkpoint would be taken for ones that were found later.
    Of a stream that was created again only what belongs to the one with the mark counts.
    """
    by_stream: defaultdict[str, dict[str, StoredCheckpoint]] = defaultdict(dict)
    for key, one in stored.items():
        by_stream[key.stream_arn][key.shard_id] = one
    resume = {}
    for arn, shards in by_stream.items():
        if (mark := shards.pop(WHOLE_STREAM, None)) is None:
            continue
        created_at = mark.checkpoint.stream_created_at
        resume[arn] = StreamProgress(
            identity=StreamIdentity(name=stream_name_of(arn), arn=arn, created_at=created_at),
            shards={
                shard_id: one.checkpoint.progress
                for shard_id, one in shards.items()
                if one.checkpoint.stream_created_at == created_at
            },
        )
    return resume
