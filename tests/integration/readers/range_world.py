"""A simulated stream, its ranges, and readers of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers import Properties
from kinesis_publishers.readers.ranges.reader import KinesisRangeReader
from kinesis_publishers.testing.fakes import finish
from kinesis_publishers_spark.offsets import Offset, ShardOffset
from tests.integration.readers.range_reading import StoredStream
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from kinesis_publishers import ShardRange
    from kinesis_publishers.readers import Ends, KinesisRangeFinder
    from kinesis_publishers.testing.local_kinesis import Behaviour
    from tests.integration.readers.range_reading import CollectingSink

__all__ = ["RangeWorld", "offset_of"]

POLLING = {"kinesis.streams": STREAM, "aws.region": "us-east-1"}


def offset_of(finder: KinesisRangeFinder, found: Ends) -> Offset:
    """Return the offset that a query writes when its finder has found these ends."""
    known = Offset.of(finder.progress)
    firsts = {key: end.first for key, end in found.items()}
    shards = {
        key: ShardOffset(progress=one.progress, first=firsts.get(key))
        for key, one in known.shards.items()
    }
    return Offset(streams=known.streams, shards=shards)


class RangeWorld(SimulatedWorld):
    """A stream of so many records, polled in pages of so many."""

    def __init__(self, behaviour: Behaviour, *, count: int, page: int) -> None:
        super().__init__(behaviour)
        state = self.service.state
        self.put(count)
        self.stream = stream = state.find_active(STREAM)
        polling = {**POLLING, "kinesis.shard.getrecords.maxrecordcount": str(page)}
        self.polling = Properties.parse(polling)
        self.fan_out = Properties.parse(
            {
                **polling,
                "kinesis.stream.recordpublisher": "EFO",
                "kinesis.stream.efo.registration": "NONE",
                f"kinesis.stream.efo.consumerarn.{STREAM}": state.register(
                    stream, "reports", {}
                ).arn,
            }
        )

    @property
    def stored(self) -> StoredStream:
        """What each shard holds now."""
        return StoredStream(self.stream.arn, self.service.state.read(STREAM))

    def reader(self, properties: Properties) -> KinesisRangeReader:
        return KinesisRangeReader(self.parts(properties, lambda event: None))

    def calls(self, operation: str) -> int:
        return len(self.service.calls.find(operation))

    async def read(
        self, reader: KinesisRangeReader, sink: CollectingSink, ranges: list[ShardRange]
    ) -> None:
        await finish(reader.read(ranges, sink), self.clock)
        await self.check_pool()

    async def check_pool(self) -> None:
        """Check that nothing is held."""
        await self.clock.settle()
        assert (self.pool.records, self.pool.payload_bytes) == (0, 0)
