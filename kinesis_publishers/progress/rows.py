"""The rows of one application in its store, each with the version that this process knows.

What a checkpointer writes to them follows the rules of their readers: one, or workers with leases.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from typing import TypeAlias

from attrs import Factory, define, field

from kinesis_publishers.abc import CheckpointStore, ForeignTable, JoinedWrite, OpenTransaction
from kinesis_publishers.clock import Clock
from kinesis_publishers.config.plugins import with_overrides
from kinesis_publishers.engine.lineage import generations
from kinesis_publishers.errors import (
    CheckpointError,
    ConnectionFailedError,
    KinesisPublishersError,
    StaleCheckpointError,
)
from kinesis_publishers.model import (
    WHOLE_STREAM,
    Checkpoint,
    CheckpointVersion,
    CheckpointWrite,
    Shard,
    ShardKey,
    ShardProgress,
    StoredCheckpoint,
    StreamIdentity,
    StreamProgress,
)
from kinesis_publishers.model.sources import stream_name_of

Identities: TypeAlias = Mapping[str, StreamIdentity]
Listing: TypeAlias = Mapping[ShardKey, Shard]
Progress: TypeAlias = Mapping[ShardKey, ShardProgress]
_Joined: TypeAlias = tuple[CheckpointWrite, CheckpointVersion, float]
"""A write in a transaction, the version that it makes, and when it was begun."""
Rows: TypeAlias = Mapping[ShardKey, StoredCheckpoint]
Learn: TypeAlias = Callable[[StaleCheckpointError], Awaitable[object]]
"""Loads what another writer has written."""
OwnedRow: TypeAlias = tuple[Checkpoint, ShardKey | None]
"""A row to write, and the row by which this reader owns its stream; ``None`` with leases."""
Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Lets nothing else call the store while its context is open."""


@define(eq=False)
class ProgressRows:
    """Loads, creates, writes and removes rows, on the versions that it knows.

    The store is open, and nothing else in this process calls it.

    Attributes:
        call_seconds: how long a call may take; ``None`` leaves that to the store's own patience.
        on_loaded: is called after each load, with the rows that were known before.
        on_written: is called after each write, with its rows and with the time when it was sent.
        turn: its holder may call the store.
        stored: the rows, as they were loaded or written last.
        foreign: what the store has for workers of another library; called inside of :meth:`asking`.
        joined: what is written in open transactions of the application; nothing else writes these
            rows meanwhile.
    """

    _store: CheckpointStore
    _clock: Clock
    call_seconds: Callable[[], float | None] = lambda: None
    on_loaded: Callable[[Rows], None] = lambda _: None
    on_written: Callable[[Collection[ShardKey], float], None] = lambda *_: None
    turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    stored: dict[ShardKey, StoredCheckpoint] = field(factory=dict, init=False)
    identities: dict[str, StreamIdentity] = field(factory=dict, init=False)
    joined: dict[ShardKey, _Joined] = field(factory=dict, init=False)
    foreign: ForeignTable = field(
        init=False,
        default=Factory(lambda self: with_overrides(ForeignTable(), self._store), takes_self=True),
    )

    def name_streams(self, identities: Identities) -> None:
        """Add streams before their rows are loaded."""
        self.identities = {**self.identities, **identities}
        self.foreign.name_streams(tuple(self.identities.values()))

    async def fetch(self) -> Rows:
        """Return what is stored now; nothing is learned from it."""
        async with self.asking("load"):
            return await self._store.load()

    async def load(self) -> None:
        """Remember the stored rows."""
        found = await self.fetch()
        before, self.stored = self.stored, dict(found)
        self.on_loaded(before)

    def replace(self, found: Rows, is_wanted: Callable[[ShardKey], bool]) -> None:
        """Remember the wanted ones of the ``found`` rows; of the others, what was known."""
        known = {key: row for key, row in self.stored.items() if not is_wanted(key)}
        self.stored = known | {key: row for key, row in found.items() if is_wanted(key)}

    async def save(self, rows: Iterable[Checkpoint]) -> set[ShardKey]:
        """Write rows on the versions that are known; return which were written.

        Raises:
            StaleCheckpointError: some were refused, because another process has written them.
        """
        rows = [row for row in rows if row.shard not in self.joined]
        writes = [CheckpointWrite.over(self.stored, row) for row in rows]
        if not writes:
            return set()
        sent_at = self._clock.monotonic()
        try:
            async with self.asking("write"):
                versions = await self._store.save(writes)
                if left_out := [str(one.shard) for one in writes if one.shard not in versions]:
                    raise CheckpointError(
                        f"{type(self._store).__name__}.save returned no version for "
                        f"{', '.join(left_out):.500}: it has to return one for each write."
                    )
        except StaleCheckpointError as refused:
            self._learn_written(writes, refused.written, sent_at)
            raise
        self._learn_written(writes, versions, sent_at)
        return {*versions}

    def join(self, row: Checkpoint, transaction: OpenTransaction) -> JoinedWrite:
        """Return the write of a row that is known, as a part of a transaction."""
        write = CheckpointWrite.over(self.stored, row)
        joined = self._store.join(write, transaction)
        self.joined[row.shard] = write, joined.version, self._clock.monotonic()
        return joined

    async def settle(self, key: ShardKey, learn: Learn, *, is_committed: bool | None) -> bool:
        """Record that a transaction was committed; return whether it was.

        ``None`` for ``is_committed`` finds that out.
        """
        joined = write, version, sent_at = self.joined.pop(key)
        known = self.stored.get(key)
        if is_committed is None and (known is None or known.version != version):
            try:
                if known is None or known.version.writer != version.writer:
                    # The transaction has ended: it would replace no version of another writer.
                    raise StaleCheckpointError(f"Another writer has changed the row of {key}.")
                # It also refuses the transaction from now on, wherever that is under way.
                await self.save([known.checkpoint])
                return False
            except StaleCheckpointError as refused:
                await learn(refused)
            except BaseException:
                self.joined[key] = joined
                raise
            known, position = self.stored.get(key), write.checkpoint.progress.position
            if known is None or known.checkpoint.progress.position != position:
                return False
            write, version = CheckpointWrite(checkpoint=known.checkpoint), known.version
        # A look may have found it already; what another worker has written since stays.
        if known and (known.version == version or known.version.number < version.number):
            self._learn_written([write], {key: version}, sent_at)
        return True

    def _learn_written(
        self,
        writes: Sequence[CheckpointWrite],
        versions: Mapping[ShardKey, CheckpointVersion],
        sent_at: float,
    ) -> None:
        written = {
            one.shard: StoredCheckpoint(checkpoint=one.checkpoint, version=versions[one.shard])
            for one in writes
            if one.shard in versions
        }
        self.stored |= written
        self.on_written(written, sent_at)

    async def create(
        self,
        shards: Iterable[Shard],
        first_row: Callable[[Shard], Checkpoint],
        is_begun: Callable[[ShardKey], bool],
        save: Callable[[Sequence[Checkpoint]], Awaitable[object]],
    ) -> None:
        """Create the rows of shards as far as they are not begun, and the marks of their streams.

        Batches need not be atomic, and a child without its parent would look as if the parent had
        been read to its end: each generation is one batch. The marks come last, so that an
        interrupted creation begins again.
        """
        for generation in generations(shards):
            # Another worker may have created them since: a refusal tells.
            await save([first_row(one) for one in generation if not is_begun(one.key)])
        marks = [Checkpoint.mark(arn, one.created_at) for arn, one in self.identities.items()]
        await save([one for one in marks if not is_begun(one.shard)])

    async def remove(self, keys: Collection[ShardKey]) -> None:
        """Remove rows of the versions that are known; ``StaleCheckpointError`` if one is newer."""
        versions = {key: self.stored[key].version for key in keys if key in self.stored}
        if not versions:
            return
        async with self.asking("remove"):
            await self._store.remove(versions)
        for key in versions:
            del self.stored[key]

    def current(self) -> dict[ShardKey, StoredCheckpoint]:
        """Return the rows of shards of the streams that are read, as they exist now."""
        return self._of({arn: one.created_at for arn, one in self.identities.items()})

    def _of(self, created_at: Mapping[str, datetime]) -> dict[ShardKey, StoredCheckpoint]:
        return {
            key: row
            for key, row in self.stored.items()
            if key.shard_id != WHOLE_STREAM
            and row.checkpoint.stream_created_at == created_at.get(key.stream_arn)
        }

    def mark(self, arn: str) -> StoredCheckpoint | None:
        """Return the mark of a stream, which says that its first checkpoint is complete."""
        return self.stored.get(ShardKey(arn, WHOLE_STREAM))

    def resumable(self) -> dict[str, StreamProgress]:
        """Return the streams that resume from their checkpoints, by ARN.

        A stream without its mark is not among them: nothing has been read then, and shards without
        a row would count as found later. Of a stream that was created again, only the rows of the
        creation with the mark count.
        """
        begun = {
            key.stream_arn: row.checkpoint.stream_created_at
            for key, row in self.stored.items()
            if key.shard_id == WHOLE_STREAM
        }
        shards: dict[str, dict[str, ShardProgress]] = {arn: {} for arn in begun}
        for key, row in self._of(begun).items():
            shards[key.stream_arn][key.shard_id] = row.checkpoint.progress
        return {
            arn: StreamProgress(
                identity=StreamIdentity(name=stream_name_of(arn), arn=arn, created_at=created_at),
                shards=shards[arn],
            )
            for arn, created_at in begun.items()
        }

    @asynccontextmanager
    async def asking(self, verb: str) -> AsyncIterator[None]:
        """Give up a call to the store that takes too long, and name it in every failure."""
        seconds = self.call_seconds()
        try:
            async with nullcontext() if seconds is None else self._clock.timeout(seconds) as limit:
                try:
                    yield
                except KinesisPublishersError as error:
                    error.add_note(f"The call was to {verb} checkpoints in {self._store}.")
                    raise
                except Exception as error:  # a plugin may raise anything
                    raise CheckpointError(
                        f"The store of checkpoints {type(self._store).__name__} failed to {verb} "
                        f"them: {type(error).__name__}: {error}. Look into the store; what was "
                        "processed since the last checkpoint is repeated by the next reader."
                    ) from error
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise
            raise ConnectionFailedError(
                f"{self._store} has not answered in {seconds:g} seconds",
                operation=verb,
                code="timeout",
            ) from error


class KeptProgress(ABC):
    """What a checkpointer writes to: the rows of an application, by the rules of its readers.

    The checkpointer has the turn of the rows for all calls but :meth:`keep` and :meth:`close`.
    """

    rows: ProgressRows

    @abstractmethod
    async def take_over(self, identities: Identities) -> dict[str, StreamProgress]:
        """Return what is stored, per stream (by ARN)."""

    @abstractmethod
    async def follow(self, identities: Identities, listed: Listing, progress: Progress) -> None:
        """Write the first checkpoint of each new shard; remove those of shards that are gone."""

    @abstractmethod
    def get(self, key: ShardKey) -> ShardProgress | None:
        """Return what is stored for a shard; ``None`` if its progress is dropped."""

    def note_age(self, key: ShardKey, progress: ShardProgress) -> None:  # noqa: B027 - optional
        """Record that an idle shard was read further, unless that needs a separate write."""

    @abstractmethod
    def row_with(self, key: ShardKey, progress: ShardProgress) -> OwnedRow:
        """Return the row of a shard to write."""

    @abstractmethod
    async def learn(self, keys: Collection[ShardKey], refused: StaleCheckpointError) -> None:
        """Load the rows of shards, which another writer has written, perhaps with another owner.

        Raises:
            CheckpointError: this reader has been replaced.
        """

    @abstractmethod
    async def write(self, progress: Progress) -> None:
        """Write the new progress of shards; it may be tried again."""

    def is_bearable(self, error: KinesisPublishersError) -> bool:
        """Return whether work continues after a failed write: no other reader may begin then."""
        return False

    @abstractmethod
    async def keep(self, turn: Turn) -> None:
        """Show that this reader is alive, until cancelled."""

    @abstractmethod
    async def close(self) -> None:
        """Let other workers continue at once."""
