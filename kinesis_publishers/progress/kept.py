"""What a checkpointer writes to: the rows of an application, by the rules of its readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeAlias

from kinesis_publishers.errors import KinesisPublishersError, StaleCheckpointError
from kinesis_publishers.model import Checkpoint, ShardKey, ShardProgress, StreamProgress
from kinesis_publishers.progress.rows import Identities, Listing, Progress, ProgressRows

Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""Lets nothing else call the store while its context is open."""


class KeptProgress(ABC):
    """What a checkpointer writes to: the rows of an application, by the rules of its readers.

    Attributes:
        rows: the rows, as they are known.
        turn: its holder may call the store, among those that the checkpointer does not know.
    """

    rows: ProgressRows
    turn: AbstractAsyncContextManager[None] = nullcontext()

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
    def row_with(
        self, key: ShardKey, progress: ShardProgress
    ) -> tuple[Checkpoint, ShardKey | None]:
        """Return the row of a shard to write, and the row by which this reader owns its stream."""

    @abstractmethod
    async def learn(self, key: ShardKey, refused: StaleCheckpointError) -> None:
        """Load the row of a shard, which another writer has written, perhaps with another owner.

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
