"""A producer on a local Kinesis in this process, whose time the test moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from attrs import define, field

from kinesis_publishers import KinesisProducer, Properties
from kinesis_publishers.abc import PutAnswer, PutColumns, RecordWriter
from kinesis_publishers.aggregation import decode_aggregate
from kinesis_publishers.assembly import WritingServices
from kinesis_publishers.assembly.classes import partitioner_of
from kinesis_publishers.config import DiscoveryConfig, ProducerConfig
from kinesis_publishers.engine.discovery import ShardDiscovery
from kinesis_publishers.errors import RecordsNotWrittenError
from kinesis_publishers.model.records import AGGREGATE_MAGIC
from kinesis_publishers.producing.routing import ShardMap
from kinesis_publishers.producing.spool import open_spool
from kinesis_publishers.testing.local_kinesis import Limits, LocalKinesis
from kinesis_publishers.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable

    from kinesis_publishers import Event
    from kinesis_publishers.testing.local_kinesis.shard import StoredRecord

__all__ = ["FIRST", "KEYS", "SECOND", "STREAM", "SlowWriter", "Writing", "writing"]

STREAM = "orders"
FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
# Of a stream of two shards: a partition key for either, by their MD5.
KEYS = {FIRST: "a", SECOND: "b"}

_T = TypeVar("_T")


@define(eq=False)
class SlowWriter(RecordWriter):
    """Takes a while for each call."""

    server: LocalKinesis
    clock: ManualClock
    seconds: float

    async def put_records(self, stream_arn: str, records: PutColumns) -> PutAnswer:
        await self.clock.sleep(self.seconds)
        return await self.server.data_plane().put_records(stream_arn, records)


@define(eq=False)
class Writing:
    """A stream of a local service, and producers for it."""

    server: LocalKinesis
    clock: ManualClock
    events: list[Event] = field(factory=list)

    async def services(
        self, *, writer: RecordWriter | None = None, **options: Any
    ) -> WritingServices:
        """Return what a producer is made of."""
        properties = Properties.parse(
            {f"kinesis.producer.{key.replace('_', '.')}": one for key, one in options.items()},
            complete=False,
        )
        discovery = ShardDiscovery(
            self.server.control_plane(), DiscoveryConfig.from_properties(properties), self.clock
        )
        return WritingServices(
            stream=await discovery.describe(STREAM),
            config=ProducerConfig.from_properties(properties),
            writer=writer or self.server.data_plane(),
            discovery=discovery,
            partitioner=partitioner_of(properties),
            clock=self.clock,
            events=self.events.append,
        )

    @asynccontextmanager
    async def producer(
        self, *, writer: RecordWriter | None = None, **options: Any
    ) -> AsyncIterator[KinesisProducer]:
        """Open a producer; ``options`` are those of ``kinesis.producer``, with ``_`` for a dot."""
        services = await self.services(writer=writer, **options)
        with open_spool(services.config.spill_path) as spool:
            async with KinesisProducer(
                services, await ShardMap.listed(services), spool=spool
            ) as producer:
                try:
                    yield producer
                except BaseException:
                    with suppress(RecordsNotWrittenError):
                        await self.run(producer.close(timeout_seconds=0))
                    raise
                # The rate of a shard, and what is refused, take time.
                await self.run(producer.close())

    async def result(self, future: asyncio.Future[_T], *, within: float = 60.0) -> _T:
        """Move time until a future is done, and return its result."""
        await self.until_done([future], within=within)
        return future.result()

    async def run(self, work: Coroutine[Any, Any, _T], *, within: float = 600.0) -> _T:
        """Move time until a coroutine has ended, and return its result."""
        return await self.result(asyncio.ensure_future(work), within=within)

    def slow(self, seconds: float) -> SlowWriter:
        """Return a writer whose calls take so long."""
        return SlowWriter(self.server, self.clock, seconds)

    async def until_done(
        self, futures: Iterable[asyncio.Future[Any]], *, within: float = 60.0
    ) -> None:
        """Move time in small steps until all futures are done."""
        waiting, end = list(futures), self.clock.monotonic() + within
        await self.clock.settle()
        while not all(one.done() for one in waiting):
            assert self.clock.monotonic() < end, "it takes too long"
            await self.clock.advance(0.01)

    def stored(self, shard_id: str | None = None) -> list[StoredRecord]:
        """Return the records of a shard, or of all shards."""
        shards = self.server.records(STREAM)
        return [one for name, found in shards.items() if shard_id in (None, name) for one in found]

    def data(self, shard_id: str | None = None) -> list[bytes]:
        """Return the data of the records of a shard, those inside aggregates included."""
        found: list[bytes] = []
        for one in self.stored(shard_id):
            if one.data.startswith(AGGREGATE_MAGIC):
                found += decode_aggregate(one.data).payloads
            else:
                found.append(one.data)
        return found

    def count(self, event_type: type, attribute: str) -> Counter[Any]:
        """Count events by one of their attributes."""
        return Counter(getattr(one, attribute) for one in self.events if type(one) is event_type)

    def total(self, event_type: type, attribute: str) -> float:
        """Add up an attribute of events."""
        return sum(getattr(one, attribute) for one in self.events if type(one) is event_type)


@pytest.fixture
def writing() -> Writing:
    """A stream of two shards without limits on rates."""
    clock = ManualClock()
    server = LocalKinesis(Limits(), clock)
    server.create_stream(STREAM, 2)
    return Writing(server, clock)
