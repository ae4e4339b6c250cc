"""What a store of checkpoints holds for the streams that are read, and the changes to it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from attrs import define, evolve, field

from kinesis_publishers.errors import (
    CheckpointError,
    KinesisPublishersError,
    StaleCheckpointError,
)
from kinesis_publishers.events import (
    CheckpointsRefused,
    CheckpointsSaved,
    EventSink,
    ignore_event,
)
from kinesis_publishers.lineage import generations
from kinesis_publishers.model import (
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StoredCheckpoint,
    StreamIdentity,
    StreamProgress,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from kinesis_publishers.abc import CheckpointStore
    from kinesis_publishers.clock import Clock
    from kinesis_publishers.model import Shard

__all__ = ["StoredProgress", "resumable_streams"]

# The id under which a stream's first checkpoint is marked as complete. Its position is that of
# shards without a checkpoint of their own: they were found later.
_STREAM: Final = "*"
_FOUND_LATER: Final = ShardProgress(position=StartingPosition.trim_horizon())


@define(eq=False)
class StoredProgress:
    """The checkpoints of one application, each with the version that this reader knows.

    Args:
        store: an open store, which nobody else in this process writes to.
        clock: what the store's time is measured with.
        events: where writes are reported.
    """

    _store: CheckpointStore
    _clock: Clock
    _events: EventSink = ignore_event
    _stored: dict[ShardKey, StoredCheckpoint] = field(factory=dict, init=False)
    # When each stream was created whose first checkpoint is complete, by ARN.
    _begun: dict[str, datetime] = field(factory=dict, init=False)
    _removed: set[ShardKey] = field(factory=set, init=False)

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

    async def follow(
        self,
        identities: Mapping[str, StreamIdentity],
        listed: Mapping[ShardKey, Shard],
        progress: Mapping[ShardKey, ShardProgress],
    ) -> None:
        """Write the first checkpoint of each new shard; remove those of shards that are gone.

        Args:
            identities: the streams that are read, by ARN; checkpoints of others are left alone.
            listed: the shards that there are, and those that are still in use.
            progress: where each of them begins, or how far it has been read.
        """
        new = [
            shard
            for key, shard in listed.items()
            if key in progress and not self._is_begun(key, identities[key.stream_arn])
        ]
        # Batches need not be atomic, and a child without its parent would look as if the parent had
        # been read to its end.
        for generation in generations(new):
            await self._begin({shard.key: progress[shard.key] for shard in generation}, identities)
        # Last of all: a first checkpoint that was cut off is written anew from the beginning.
        streams = {ShardKey(arn, _STREAM): identity for arn, identity in identities.items()}
        await self._begin(
            {
                key: _FOUND_LATER
                for key, identity in streams.items()
                if not self._is_begun(key, identity)
            },
            identities,
        )
        self._begun |= {arn: identity.created_at for arn, identity in identities.items()}
        await self._remove(
            key
            for key in self._stored
            if key.stream_arn in identities
            and key not in listed
            and key.shard_id != _STREAM
            # One that has not ended is newer than the listing.
            and (key not in progress or progress[key].is_ended)
        )

    async def write(self, progress: Mapping[ShardKey, ShardProgress]) -> None:
        """Write how far shards have been processed that have a checkpoint, where that is new."""
        known = {key: self._stored[key].checkpoint for key in progress if key in self._stored}
        await self._save(
            evolve(checkpoint, progress=progress[key])
            for key, checkpoint in known.items()
            if checkpoint.progress != progress[key]
        )

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
                shard=key,
                stream_created_at=identities[key.stream_arn].created_at,
                progress=one,
            )
            for key, one in progress.items()
        )

    async def _save(self, checkpoints: Iterable[Checkpoint]) -> None:
        writes = [
            CheckpointWrite(checkpoint=one, expected=self._version(one)) for one in checkpoints
        ]
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
        if shards := sum(one.shard.shard_id != _STREAM for one in writes):
            seconds = self._clock.monotonic() - began_at
            self._events(CheckpointsSaved(shards=shards, seconds=seconds))

    def _version(self, checkpoint: Checkpoint) -> CheckpointVersion | None:
        stored = self._stored.get(checkpoint.shard)
        return None if stored is None else stored.version

    async def _remove(self, keys: Iterable[ShardKey]) -> None:
        versions = {key: self._stored[key].version for key in keys}
        if not versions:
            return
        with self._asking("remove"):
            await self._store.remove(versions)
        for key in versions:
            del self._stored[key]
        self._removed |= versions.keys()

    @contextmanager
    def _asking(self, verb: str) -> Iterator[None]:
        try:
            yield
        except KinesisPublishersError as error:
            if isinstance(error, StaleCheckpointError):
                self._events(CheckpointsRefused(message=str(error)))
            error.add_note(f"It was to {verb} checkpoints in {self._store}.")
            raise
        except Exception as error:  # a store of somebody else's may raise anything
            raise CheckpointError(
                f"The store of checkpoints {type(self._store).__name__} failed to {verb} them: "
                f"{type(error).__name__}: {error}. Look into the store; what was processed since "
                "the last checkpoint is repeated by the next reader."
            ) from error


def resumable_streams(
    stored: Mapping[ShardKey, StoredCheckpoint],
) -> dict[str, StreamProgress]:
    """Return the streams that go on where they were, by ARN.

    A stream is not among them without the mark that its first checkpoint is complete: nothing has
    been read then, and shards without a checkpoint would be taken for ones that were found later.
    Of a stream that was created again only what belongs to the one with the mark counts.
    """
    by_stream: defaultdict[str, dict[str, StoredCheckpoint]] = defaultdict(dict)
    for key, one in stored.items():
        by_stream[key.stream_arn][key.shard_id] = one
    resume = {}
    for arn, shards in by_stream.items():
        if (mark := shards.pop(_STREAM, None)) is None:
            continue
        created_at = mark.checkpoint.stream_created_at
        resume[arn] = StreamProgress(
            identity=StreamIdentity(name=arn.rpartition("/")[2], arn=arn, created_at=created_at),
            shards={
                shard_id: one.checkpoint.progress
                for shard_id, one in shards.items()
                if one.checkpoint.stream_created_at == created_at
            },
        )
    return resume
