"""A query over a simulated stream that plans ranges, and reads them out of what is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_publishers import Properties
from kinesis_publishers.events import RecordsFetched
from kinesis_publishers.model import PositionType
from kinesis_publishers.readers import Ends, KinesisRangeFinder, Portion, ReadLimit
from kinesis_publishers.testing.local_kinesis import Behaviour
from kinesis_publishers_spark.offsets import Offset
from tests.integration.readers.range_world import offset_of
from tests.integration.readers.simulated_world import STREAM, SimulatedWorld

if TYPE_CHECKING:
    from datetime import datetime

    from kinesis_publishers import Event, ShardRange

PROPERTIES = Properties.parse({"aws.region": "us-east-1", "kinesis.streams": STREAM})
PORTION = Portion()


class Query(SimulatedWorld):
    """A query that plans, and reads every range out of what is stored."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        properties: Properties = PROPERTIES,
        patience_seconds: float | None = None,
    ) -> None:
        super().__init__(behaviour or Behaviour())
        self.properties, self.patience_seconds = properties, patience_seconds
        self.events: list[Event] = []
        self.finder = self._new_finder()
        self.offset = Offset()
        self.read: dict[str, list[int]] = {}

    def _new_finder(self, resume: Offset | None = None) -> KinesisRangeFinder:
        parts = self.parts(self.properties, self.events.append)
        progress = resume.progress if resume else None
        return KinesisRangeFinder(parts, resume=progress, patience_seconds=self.patience_seconds)

    async def begin(self) -> None:
        await self.within_time(self.finder.prepare())
        self.offset = Offset.of(self.finder.progress)

    async def restart(self) -> None:
        """Go on in a new process, with nothing but the text of the last offset."""
        self.offset = Offset.from_json(self.offset.to_json())
        self.finder = self._new_finder(self.offset)
        await self.within_time(self.finder.prepare())

    async def read_everything(self) -> None:
        """Have one micro-batch with all there is, as Trigger.Once does."""
        self._take(await self.within_time(self.finder.find_tip()))

    async def read_some(
        self, limit: ReadLimit, portion: Portion = PORTION, *, until: datetime | None = None
    ) -> Ends:
        """Have one micro-batch within a limit."""
        found = await self.within_time(self.finder.find(limit, portion, until=until))
        self._take(found)
        return found

    @property
    def records_fetched(self) -> int:
        return sum(one.records for one in self.events if isinstance(one, RecordsFetched))

    def _take(self, found: Ends) -> None:
        end = offset_of(self.finder, found)
        for one in end.ranges_since(self.offset):
            self.read.setdefault(one.shard.shard_id, []).extend(self._records_of(one))
        self.offset = end

    def _records_of(self, one: ShardRange) -> list[int]:
        stored = self.stored().get(one.shard.shard_id, [])
        if one.end is not None:
            last = stored.index(int(one.end.sequence_number))
            stored = stored[: last + (not one.excludes_end)]
        number = one.start.sequence_number
        if number is None:
            return stored
        begin = int(number.sequence_number)
        is_after = one.start.type is PositionType.AFTER_SEQUENCE_NUMBER
        return [n for n in stored if n > begin or (n == begin and not is_after)]

    def stored(self) -> dict[str, list[int]]:
        return {shard: numbers for shard, numbers in self.numbers().items() if numbers}
