"""Short names for what most tests of ranges say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field

from kinesis_publishers import PublisherContext, ShardRange, StartingPosition
from kinesis_publishers.engine.range_consumer import RangeConsumer
from kinesis_publishers.events import DataLossTolerated
from kinesis_publishers.publishers.polling import PollingRecordPublisherFactory
from kinesis_publishers.testing.fakes import (
    FakeControlPlane,
    FakeDataPlane,
    ScriptedPublisherFactory,
    ShardReader,
    finish,
    sample_shard,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.engine.consumer_support import place
from tests.unit.readers.fetcher_support import POLLING

if TYPE_CHECKING:
    from kinesis_publishers import RecordPublisherFactory
    from kinesis_publishers.testing.fakes import RecordingSink, ScriptedRun

__all__ = ["RangeWorld", "losses", "polled", "range_of", "scripted"]

SHARD = sample_shard().key


def range_of(start: int, end: int | None, *, at: bool = False) -> ShardRange:
    """Return a range of the sample records: after ``start``, or at it, to ``end`` included."""
    position = StartingPosition.at if at else StartingPosition.after
    last = None if end is None else place(end)
    return ShardRange(shard=SHARD, start=position(place(start)), end=last)


@define(kw_only=True)
class RangeWorld:
    """One shard, and everything that reads ranges of it."""

    factory: RecordPublisherFactory
    reader: ShardReader = field(init=False)
    clock: ManualClock = field(factory=ManualClock)
    sink: RecordingSink | None = None
    fails_on_data_loss: bool = True
    # What a polling factory reads.
    data_plane: FakeDataPlane | None = None

    def __attrs_post_init__(self) -> None:
        sink = {} if self.sink is None else {"sink": self.sink}
        self.reader = ShardReader(
            factory=self.factory,
            clock=self.clock,
            fails_on_data_loss=self.fails_on_data_loss,
            **sink,
        )
        self.sink = self.reader.sink

    def consumer(self, wanted: ShardRange) -> RangeConsumer:
        return RangeConsumer(wanted, self.reader.context)

    async def read(self, wanted: ShardRange) -> None:
        """Read one range. The pool must be empty then."""
        try:
            await finish(self.consumer(wanted).run(), self.clock)
        finally:
            assert self.held == (0, 0)

    @property
    def held(self) -> tuple[int, int]:
        """The records and bytes in the pool."""
        return self.reader.pool.records, self.reader.pool.payload_bytes


def scripted(*runs: ScriptedRun, **settings: object) -> RangeWorld:
    """Return a world whose one publisher does ``runs``, after which the shard has ended."""
    return RangeWorld(factory=ScriptedPublisherFactory(runs), **settings)


def polled(data_plane: FakeDataPlane, **settings: object) -> RangeWorld:
    """Return a world in which the shards of ``data_plane`` are polled."""
    clock = ManualClock()
    context = PublisherContext(
        data_plane=data_plane,
        control_plane=FakeControlPlane(),
        clock=clock,
        events=lambda event: None,
    )
    factory = PollingRecordPublisherFactory(POLLING, context)
    return RangeWorld(factory=factory, clock=clock, data_plane=data_plane, **settings)


def losses(world: RangeWorld) -> list[str]:
    """Return what was reported as lost."""
    return [one.message for one in world.reader.events if isinstance(one, DataLossTolerated)]
