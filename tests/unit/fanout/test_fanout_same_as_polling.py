"""A shard consumer does not see which publisher reads: the same assertions over either factory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_publishers import (
    SequenceNumber,
    StartingPosition,
)
from kinesis_publishers.testing.fakes import (
    SUCCESSOR,
    FakeDataPlane,
    StoredShard,
    assert_shard_is_read,
    deaggregated,
    sample_aggregates,
    sample_records,
)
from kinesis_publishers.testing.manual_clock import ManualClock
from tests.unit.fanout.fanout_support import fan_out_factory
from tests.unit.polling.polling_support import polling_factory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_publishers.abc import RecordPublisherFactory

    MakeFactory = Callable[[FakeDataPlane, ManualClock], RecordPublisherFactory]


@pytest.fixture(params=[polling_factory, fan_out_factory], ids=["polling", "fan-out"])
def make_factory(request: pytest.FixtureRequest) -> MakeFactory:
    return request.param


def closed_shard(records: int, *page_ends: int) -> FakeDataPlane:
    shard = StoredShard(sample_records(records), page_ends=page_ends)
    shard.close(SUCCESSOR)
    return FakeDataPlane(shard)


@pytest.mark.parametrize("records", [0, 1, 7, 100])
async def test_a_closed_shard_is_read_to_its_end(make_factory: MakeFactory, records: int):
    clock, plane = ManualClock(), closed_shard(records, 1, 2, 5, 50)
    await assert_shard_is_read(make_factory(plane, clock), sample_records(records), clock=clock)


async def test_reading_begins_where_it_is_told_to(make_factory: MakeFactory):
    held = sample_records(10)
    starts = {
        StartingPosition.at(SequenceNumber(held[4].sequence_number)): 4,
        StartingPosition.after(SequenceNumber(held[4].sequence_number)): 5,
        StartingPosition.at_timestamp(held[6].approximate_arrival_timestamp): 6,
        StartingPosition.trim_horizon(): 0,
    }
    for start, first in starts.items():
        clock = ManualClock()
        factory = make_factory(closed_shard(10, 3, 6, 9), clock)
        await assert_shard_is_read(factory, held[first:], clock=clock, start=start)


AGGREGATES = sample_aggregates(4, 3)


def shard_of_aggregates() -> FakeDataPlane:
    shard = StoredShard(AGGREGATES, page_ends=[2])
    shard.close(SUCCESSOR)
    return FakeDataPlane(shard)


@pytest.mark.parametrize("done", range(12))
async def test_reading_goes_on_inside_an_aggregate(
    make_factory: MakeFactory, manual_clock: ManualClock, done: int
) -> None:
    """After each record inside, one is processed and the next one follows, none twice."""
    inside = deaggregated(AGGREGATES)
    last = inside[done]
    position = StartingPosition.at(SequenceNumber(last.sequence_number, last.sub_sequence_number))
    factory = make_factory(shard_of_aggregates(), manual_clock)
    await assert_shard_is_read(factory, inside[done + 1 :], clock=manual_clock, start=position)
