"""Where the progress of an application is kept between its runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from kinesis_publishers.clock import Clock
from kinesis_publishers.config import Properties
from kinesis_publishers.errors import CheckpointError
from kinesis_publishers.events import EventSink, log_event
from kinesis_publishers.model import (
    CheckpointVersion,
    CheckpointWrite,
    ShardKey,
    StoredCheckpoint,
    StreamIdentity,
)
from kinesis_publishers.retry import RetryPolicy


@frozen(kw_only=True)
class CheckpointStoreContext:
    """What a store needs.

    Attributes:
        application: the owner of the checkpoints; those of other applications are never touched.
        retry: how the store repeats a failed call: it alone knows which part of a batch has failed.
        events: receives a report of each repetition.
    """

    application: str
    retry: RetryPolicy
    clock: Clock
    events: EventSink = log_event


@frozen(kw_only=True)
class OpenTransaction:
    """A transaction of the application.

    Attributes:
        handle: where a write goes, as a connection; the store says which kinds it takes.
        owner: the row by which a single reader has the stream; ``None`` with leases.
        request: further arguments of the call that ends the transaction, for a storage whose
            transactions are one call.
    """

    handle: Any
    owner: ShardKey | None
    request: Mapping[str, Any]


@frozen(kw_only=True)
class JoinedWrite:
    """A write in a transaction of the application.

    Attributes:
        version: what the row has once the transaction is committed.
        execute: makes the write; returns whether it was made, and not refused. With an asynchronous
            transaction it returns an awaitable of that.
    """

    version: CheckpointVersion
    execute: Callable[[], bool | Awaitable[bool]]


class CheckpointStore(ABC):
    """Keeps the checkpoints of one application, with conditional writes.

    ``kinesis.checkpoint.store`` names one: memory, sqlite, dynamodb, an entry point, or
    ``module:Class``. It is used as ``async with store``, by one task at a time; any number of
    processes may use the same storage. Its ``str`` says where the checkpoints are.

    A write names the version that it replaces, and is refused if another reader has written. A call
    that is repeated because its answer was lost must succeed even if its first attempt was carried
    out; so must a call with the same expected version after one that was cancelled or has failed,
    unless another store has written since: see
    :class:`~kinesis_publishers.checkpoints.WriteBook`.
    """

    @classmethod
    @abstractmethod
    def from_properties(cls, properties: Properties, context: CheckpointStoreContext) -> Self:
        """Return a store that is not open yet.

        Raises:
            ConfigError: the properties cannot work; no call is made to find out.
        """

    @abstractmethod
    async def open(self) -> None:
        """Get ready for the other calls: connect, create what is missing.

        Raises:
            CheckpointError: the storage holds something else, or was written by a newer version.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release what :meth:`open` took, even if it has failed; nothing is written afterwards.

        While the store is not open, the other calls raise ``ClosedError``.
        """

    @abstractmethod
    async def load(self) -> Mapping[ShardKey, StoredCheckpoint]:
        """Return the newest checkpoint of each shard of the application.

        Raises:
            CheckpointError: one of them cannot be decoded.
        """

    @abstractmethod
    async def save(self, writes: Sequence[CheckpointWrite]) -> Mapping[ShardKey, CheckpointVersion]:
        """Write checkpoints, each shard at most once, durably, and return their new versions.

        Writes are independent: if some are refused, the others are written before the error is
        raised, whose ``written`` has their versions. After any other error each write has either
        happened or not.

        Raises:
            StaleCheckpointError: a shard has another version than the expected one.
            RetriesExhaustedError: the storage was unavailable or busy for too long.
        """

    def join(self, write: CheckpointWrite, transaction: OpenTransaction) -> JoinedWrite:
        """Make a write part of a transaction of the application, which must be of this storage.

        The write is of a row that exists. It is refused as by :meth:`save`, or if another store has
        written the row of the owner. Whether the transaction is committed is the caller's affair.
        Optional: this refuses it.

        Raises:
            CheckpointError: the store has no transactions that others can use.
            TypeError: it takes no such transaction.
        """
        raise CheckpointError(
            f"Checkpoints in {self} cannot be part of a transaction: set kinesis.checkpoint.store "
            "to sql, sqlite or dynamodb, with the database that the transaction is of."
        )

    @abstractmethod
    async def remove(self, versions: Mapping[ShardKey, CheckpointVersion]) -> None:
        """Remove checkpoints of these versions; a checkpoint that no longer exists is no error.

        Removals are independent, as the writes of :meth:`save`.

        Raises:
            StaleCheckpointError: a shard has another version than the expected one.
        """

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class ForeignTable:
    """What a store may have in addition, if another library reads and writes its table too.

    Each method is optional; these do nothing.
    """

    def name_streams(self, streams: Collection[StreamIdentity]) -> None:
        """Receive the streams, before the first load, for rows without the ARN of their stream."""

    async def check_first_use(self) -> None:
        """Check, where workers with leases find nothing stored, that nothing is elsewhere.

        Raises:
            CheckpointError: the application has checkpoints in another form, and would begin again.
        """

    async def report(self, worker: str, *, is_leaving: bool = False) -> bool:
        """Report a worker to a leader that shares the shards out; return whether there is one.

        Called after each load. The worker then takes what rows give it, and asks for none.
        """
        return False
