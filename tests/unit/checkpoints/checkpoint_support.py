"""A checkpointer over a store in memory that a test can hold up or make fail."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from attrs import define, field

from kinesis_publishers import (
    Event,
    SequenceNumber,
    Shard,
    ShardKey,
    ShardProgress,
    StartingPosition,
    StreamIdentity,
)
from kinesis_publishers.abc import CheckpointStoreContext
from kinesis_publishers.checkpoints import CheckpointMemory, MemoryCheckpointStore
from kinesis_publishers.config import CheckpointConfig
from kinesis_publishers.model import Checkpoint, CheckpointWrite
from kinesis_publishers.progress.checkpointer import Checkpointer
from kinesis_publishers.progress.single_reader import SingleReader
from kinesis_publishers.retry import RetryPolicy
from kinesis_publishers.testing.fakes import STREAM_ARN, sample_shard
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.servers import PASSWORD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from kinesis_publishers.abc import CheckpointStore
    from kinesis_publishers.model import CheckpointVersion, StoredCheckpoint
    from tests.servers import Server

POLICY = RetryPolicy(max_retries=0, base_seconds=0, max_seconds=0, exponent=1)
CREATED_AT = datetime(2025, 12, 1, tzinfo=UTC)


def streams(*arns: str) -> dict[str, StreamIdentity]:
    """Return the identities of streams that were created at the same time."""
    return {
        arn: StreamIdentity(name=arn.rpartition("/")[2], arn=arn, created_at=CREATED_AT)
        for arn in arns
    }


IDENTITIES = streams(STREAM_ARN)
KEY = sample_shard(0).key
BEGINNING = ShardProgress(position=StartingPosition.trim_horizon())


def at(number: int, *, as_of: datetime | None = None, ended: bool = False) -> ShardProgress:
    """Return the progress after the record ``number``."""
    position = StartingPosition.after(SequenceNumber(str(number)))
    return ShardProgress(position=position, as_of=as_of, is_ended=ended)


WRITE = CheckpointWrite(
    checkpoint=Checkpoint(shard=KEY, stream_created_at=CREATED_AT, progress=at(1))
)


async def refusal_of(store: CheckpointStore, kind: type[Exception]) -> str:
    """Return what is said when the store is opened and used; never with the password."""

    async def use() -> None:
        async with store:
            await store.load()
            await store.save([WRITE])

    with pytest.raises(kind) as raised:
        await use()
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))
    assert PASSWORD not in str(store)
    return str(raised.value)


class Address:
    """A port that leads to one of several servers; as with DNS, connections stay where they are.

    Attributes:
        target: where the next connection leads.
        change: makes what arrives of what a server has sent.
        connections: how many there were.
    """

    def __init__(self, target: Server) -> None:
        self.target = target
        self.change: Callable[[bytes], bytes] = bytes
        self.port = self.connections = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        async with await asyncio.start_server(self._forward, "127.0.0.1") as listener:
            self.port = listener.sockets[0].getsockname()[1]
            yield self

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.target.port)
        await asyncio.gather(_copy(reader, ours, bytes), _copy(theirs, writer, self.change))


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
) -> None:
    with closing(writer), suppress(OSError):
        while data := await reader.read(65536):
            writer.write(change(data))


class ScriptedStore(MemoryCheckpointStore):
    """Remembers its batches; waits for ``gate`` and raises ``errors`` before each of them."""

    def __init__(self, clock: ManualClock, memory: CheckpointMemory) -> None:
        context = CheckpointStoreContext(application="billing", retry=POLICY, clock=clock)
        super().__init__(context, memory)
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[Exception] = []
        self.batches: list[dict[ShardKey, ShardProgress]] = []
        self.is_up = asyncio.Event()
        self.is_up.set()

    async def load(self) -> dict[ShardKey, StoredCheckpoint]:
        await self.is_up.wait()
        return await super().load()

    async def save(self, writes: Sequence[CheckpointWrite]) -> dict[ShardKey, CheckpointVersion]:
        self.batches.append({one.shard: one.checkpoint.progress for one in _without_marks(writes)})
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return await super().save(writes)


def _without_marks(writes: Sequence[CheckpointWrite]) -> Sequence[CheckpointWrite]:
    """Leave out the marks of streams that come along with checkpoints of shards."""
    return [one for one in writes if one.shard.shard_id != "*"] or writes


@define(kw_only=True)
class Buffer:
    """A checkpointer and what it is made of."""

    clock: ManualClock = field(factory=ManualClock)
    memory: CheckpointMemory = field(factory=CheckpointMemory)
    max_records: int = 1000
    events: list[Event] = field(factory=list, init=False)
    store: ScriptedStore = field(init=False)
    checkpointer: Checkpointer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = ScriptedStore(self.clock, self.memory)
        config = CheckpointConfig(
            application="billing",
            store="memory",
            interval_seconds=10.0,
            max_records=self.max_records,
            retry=POLICY,
        )
        self.checkpointer = Checkpointer(
            SingleReader(self.store, self.clock, self.events.append), config, self.clock
        )

    async def beside(self) -> Buffer:
        """Return another reader, over the same storage, whose store is open."""
        other = Buffer(clock=self.clock, memory=self.memory)
        await other.store.open()
        return other

    async def begin(self, *shards: Shard) -> None:
        """Open the store, and see these shards for the first time."""
        await self.store.open()
        await self.checkpointer.take_over({})
        await self.follow({shard.key: BEGINNING for shard in shards or [sample_shard(0)]}, *shards)
        self.store.batches.clear()

    async def follow(self, progress: Mapping[ShardKey, ShardProgress], *shards: Shard) -> None:
        listed = {shard.key: shard for shard in shards or [sample_shard(0)]}
        await self.checkpointer.follow(IDENTITIES, listed, progress)

    @property
    def stored(self) -> dict[ShardKey, ShardProgress]:
        """What is in the store, without the marks of whole streams."""
        found = self.memory.applications["billing"]
        return {
            key: one.checkpoint.progress for key, (one, _) in found.items() if key.shard_id != "*"
        }

    async def write_as_another_reader(self, key: ShardKey, progress: ShardProgress) -> None:
        """Let another reader take over, and write how far it is."""
        other = Buffer(clock=self.clock, memory=self.memory)
        async with other.store:
            await other.checkpointer.take_over(streams(key.stream_arn))
            other.checkpointer.record(key, progress)
            await other.checkpointer.flush()
